"""A picture of a web page by a headless browser: `browser.py URL FILE WIDTH HEIGHT [--click SELECTOR] [--type TEXT]
[--wait SECONDS]`.

Qt's WebEngine, which is Chromium, comes by pip: PyQt6-WebEngine. Used by `take`, in its environment.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("QTWEBENGINE_DISABLE_SANDBOX", "1")  # in a container of root's
os.environ.setdefault("QTWEBENGINE_CHROMIUM_FLAGS", "--disable-gpu")

from PyQt6.QtCore import QTimer, QUrl  # noqa: E402 - after what they read
from PyQt6.QtTest import QTest  # noqa: E402
from PyQt6.QtWebEngineWidgets import QWebEngineView  # noqa: E402
from PyQt6.QtWidgets import QApplication  # noqa: E402

_LIMIT_S = 120


def main() -> int:
    """Exit code for the shell: 1 if the page did not load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("file")
    parser.add_argument("width", type=int)
    parser.add_argument("height", type=int)
    parser.add_argument("--click", help="a CSS selector")
    parser.add_argument("--type", help="keys for what has the focus then")
    parser.add_argument("--wait", type=float, default=2.0, help="seconds after the last of it")
    asked = parser.parse_args()
    application = QApplication(sys.argv[:1])
    view = QWebEngineView()
    view.resize(asked.width, asked.height)
    view.show()

    def loaded(well: bool) -> None:
        if not well:
            return application.exit(1)
        if asked.click:
            view.page().runJavaScript(f"document.querySelector({asked.click!r}).click()")
        return QTimer.singleShot(1000, typed)

    def typed() -> None:
        if asked.type:
            QTest.keyClicks(view.focusProxy(), asked.type)
        QTimer.singleShot(int(asked.wait * 1000), taken)

    def taken() -> None:
        application.exit(0 if view.grab().save(asked.file) else 1)

    view.loadFinished.connect(loaded)
    QTimer.singleShot(_LIMIT_S * 1000, lambda: application.exit(1))
    view.load(QUrl(asked.url))
    return application.exec()


if __name__ == "__main__":
    sys.exit(main())

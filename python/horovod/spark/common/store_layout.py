"""Where what lies in a store. Pure."""

from __future__ import annotations

from typing import Optional


class StoreLayout:
    """The paths of a store: of data sets, of runs and what is kept of them."""

    _paths: dict[str, str]  # of the folders "train", "val", "test" and "runs"
    _save_runs = True
    _checkpoint_filename = "checkpoint"

    def get_train_data_path(self, idx: Optional[int] = None) -> str:
        """Rows to train with; `idx`: of which data set."""
        return _numbered(self._paths["train"], idx)

    def get_val_data_path(self, idx: Optional[int] = None) -> str:
        """Rows to validate with."""
        return _numbered(self._paths["val"], idx)

    def get_test_data_path(self, idx: Optional[int] = None) -> str:
        """Rows to test with; nothing of ours is there."""
        return _numbered(self._paths["test"], idx)

    def saving_runs(self) -> bool:
        """Checkpoints and logs are kept."""
        return self._save_runs

    def get_runs_path(self) -> str:
        """The folder of all runs."""
        return self._paths["runs"]

    def get_run_path(self, run_id: str) -> str:
        """The folder of a run."""
        return f"{self._paths['runs']}/{run_id}"

    def get_checkpoint_filename(self) -> str:
        """The name of a run's checkpoint."""
        return self._checkpoint_filename

    def get_checkpoint_path(self, run_id: str) -> str:
        """A run's checkpoint."""
        return f"{self.get_run_path(run_id)}/{self._checkpoint_filename}"

    def get_logs_subdir(self) -> str:
        """The name of the folder of a run's logs."""
        return "logs"

    def get_logs_path(self, run_id: str) -> str:
        """The folder of a run's logs."""
        return f"{self.get_run_path(run_id)}/{self.get_logs_subdir()}"


def _numbered(path: str, idx: Optional[int]) -> str:
    return path if idx is None else f"{path}.{idx}"

"""The native core as Python sees it: `library` finds and loads libhorovod.so, `abi` mirrors its header, `config` fills
in what the engine is given, `engine` calls it.

Used by `horovod._core` and by nobody else. It knows no error class of horovod, no framework and no settings.
Importing it loads nothing.
"""

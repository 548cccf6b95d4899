"""Dumps of a job that hangs: the dump of one rank, and the comparison of all dumps.

The ranks write dumps (`horovod._core.life`), `horovodrun` reads and compares them (`horovod.runner`); both know this
package, which knows neither.
"""

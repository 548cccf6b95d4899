"""What ranks tell of a job that hangs: the dump of one rank, and what the dumps of all say together.

The ranks write dumps (`horovod._core.life`), `horovodrun` reads and compares them (`horovod.runner`); both know this
package, which knows neither.
"""

"""How the ranks of a job find and trust one another.

::

    placement = detect_placement()                        # who am I: from the launcher's variables
    with_engine = bootstrap(placement, epoch=0, region_bytes=..., timeout_s=30.0)    # Collective.
    ... fill hvd_config from it, hvd_init, then with_engine.disown()

`bootstrap` meets the other ranks, authenticates each of them, exchanges descriptors and returns when *all* pairs of
ranks (of large jobs on several hosts: those that negotiate) are connected, or raises on all ranks. It leaves nothing
behind: no file, and a listening socket only where connections come later. Where another launcher than ours has started
ranks on several hosts, `fact_exchange` comes first. Below them:
clusters (one plug-in per launcher, placement), mpi (the library through which ranks exchange facts), meeting (the
private directory, claims, signs of the dead, the board) and handshake (connect, the loop over all peers, and its
parts). The package imports neither the core nor any other package of horovod and holds no policy about errors: it
raises `NetError`s (failures.py), which `_core` and the launcher translate.

The package itself imports nothing, because importing any module of it runs this file: the launcher needs some small
ones, and no handshake.
"""

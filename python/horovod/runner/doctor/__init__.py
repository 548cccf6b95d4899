"""`horovodrun doctor`: one page about this machine. `findings` are values, `page` renders them, `examination` asks the
probes with deadlines, `command` reads the words; the probes are in `machine`, `software`, `network`, `gpus` and
`choices`. `checks` is the page of `--check-build`; `availability` and `gpu_libraries` answer for both."""

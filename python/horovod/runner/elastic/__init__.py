"""Elastic jobs: ranks come and go, the training goes on (design 0017).

Deciding is pure: `discovery` reads what a script prints, `blacklist` says which hosts get no new ranks, `assignment`
who becomes which rank, `machine` what happens next, in the words of `events`. Acting is in `driver`, `script`,
`roster_keeper` and `journal`.
"""

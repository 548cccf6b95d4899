"""Training that survives failures and changes of hosts, as far as no framework matters: `state` what is kept, `loop`
when to try again, `notification` how news of hosts arrive."""

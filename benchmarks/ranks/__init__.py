"""What the ranks of every contender run, whatever library they measure."""

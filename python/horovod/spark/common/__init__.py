"""What the estimators share: stores, the way of the rows from a DataFrame to the ranks, parameters, base classes."""

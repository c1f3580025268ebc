"""Pure decisions: scores, calibration, dates, money, rules. Nothing here reads a store."""

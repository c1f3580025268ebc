"""Agents: the plug-ins that do the steps of runs."""

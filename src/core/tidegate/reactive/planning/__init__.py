"""From changes to tasks: the change stream, reconciliation, sweeps and deployments."""

"""Whatever touches the world: drivers, files, terminals and clocks, each behind an extra of its own."""

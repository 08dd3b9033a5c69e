"""How `tidegate.counters` is checked: laws, scenarios, planted bugs and strategies."""

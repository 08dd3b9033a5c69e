"""How `tidegate.sinks` is checked: laws, scenarios, planted bugs and strategies."""

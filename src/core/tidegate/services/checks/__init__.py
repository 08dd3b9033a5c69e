"""How `tidegate.services` is checked: laws, scenarios, planted bugs and strategies."""

"""How `tidegate.model` is checked: laws, scenarios, planted bugs and strategies."""

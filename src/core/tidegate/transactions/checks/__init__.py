"""How `tidegate.transactions` is checked: laws, scenarios, planted bugs and strategies."""

"""How `tidegate.payloads` is checked: laws, scenarios, planted bugs and strategies."""

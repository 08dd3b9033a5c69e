"""How `tidegate.retries` is checked: laws, scenarios, planted bugs and strategies."""

"""How `tidegate.consumer` is checked: laws, scenarios, planted bugs and strategies."""

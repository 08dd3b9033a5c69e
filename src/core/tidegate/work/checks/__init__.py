"""How `tidegate.work` is checked: laws, scenarios, planted bugs and strategies."""

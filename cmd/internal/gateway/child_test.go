package gateway_test

// runChild runs this process as a gateway if it was started as one.
func runChild() bool { return false }

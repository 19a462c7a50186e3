//go:build !unix

package stack

// Alone cannot keep others waiting here.
func Alone() {}

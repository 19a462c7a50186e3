package main

import (
	"testing"

	"github.com/paidonce/paidonce/integration/stack"
)

func TestMain(m *testing.M) {
	if stack.RunChild() {
		return
	}
	stack.Beside(4)
	stack.Main(m)
}

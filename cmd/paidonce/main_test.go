package main

import (
	"os"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/integration/stack"
)

// asProgram holds the words of a command line: with them this program is paidonce, in a process of its own.
const asProgram = "TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if line := os.Getenv(asProgram); line != "" {
		os.Args = append(os.Args[:1], strings.Fields(line)...)
		main()
	}
	if stack.RunChild() {
		return
	}
	stack.Beside(4)
	stack.Main(m)
}

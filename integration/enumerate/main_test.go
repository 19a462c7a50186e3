package enumerate

import (
	"testing"

	"github.com/paidonce/paidonce/integration/stack"
)

func TestMain(m *testing.M) { stack.Main(m) }

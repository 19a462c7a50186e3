package crash

import (
	"regexp"
	"testing"
)

// TestReach_IsWhatTheMigrationsSay: which programs accept a schema is said by its last migration that says anything about it.
func TestReach_IsWhatTheMigrationsSay(t *testing.T) {
	const text = "UPDATE schema_reach SET oldest_program = 9;\n-- later\nUPDATE schema_reach SET oldest_program = 12;"
	if n := greatest(regexp.MustCompile(saysReach), text); n != 12 {
		t.Errorf("%d, want 12", n)
	}
	if n := greatest(regexp.MustCompile(saysVersion), "const (\n\tCurrent int64 = 15\n\tOldest  int64 = 14\n)"); n != 15 {
		t.Errorf("%d, want 15", n)
	}
	if least, err := reach(); err != nil || least < 7 {
		t.Errorf("%d, %v: programs ask the schema since its version 7", least, err)
	}
}

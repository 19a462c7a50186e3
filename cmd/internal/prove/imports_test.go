package prove

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The proof shares no code with what writes the ledger.
func TestSharesNoCodeWithTheWritePath(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	const module, allowed = `"github.com/paidonce/paidonce/`, `"github.com/paidonce/paidonce/bankclient"`
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if strings.HasPrefix(i.Path.Value, module) && i.Path.Value != allowed {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}

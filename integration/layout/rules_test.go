package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	root             = "../.."
	maxFunctionLines = 70
	maxFileLines     = 600
	maxMainLines     = 15
)

// source is one Go file of the module.
type source struct {
	path string // from the root of the module
	text string
	file *ast.File
	set  *token.FileSet
}

func parse(path, text string) (source, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments)
	return source{path, text, file, set}, err
}

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != root {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(name), string(text))
		all = append(all, s)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Fatalf("found only %d Go files", len(all))
	}
	return all
}

func (s source) line(n ast.Node) int { return s.set.Position(n.Pos()).Line }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) fault(n ast.Node, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", s.path, s.line(n), fmt.Sprintf(format, args...))
}

// faults returns one sentence per house rule that a file breaks.
func (s source) faults() []string {
	faults := append(s.shapeFaults(), s.textFaults()...)
	faults = append(faults, s.globalFaults()...)
	ast.Inspect(s.file, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if fault := s.callFault(call); fault != "" {
				faults = append(faults, fault)
			}
		}
		if id, ok := n.(*ast.Ident); ok && (id.Name == "float32" || id.Name == "float64") && s.nearMoney() {
			faults = append(faults, s.fault(id, "no float anywhere near money"))
		}
		return true
	})
	return faults
}

func (s source) nearMoney() bool {
	return !s.isTest() && (strings.HasPrefix(s.path, "ledger/") || strings.HasPrefix(s.path, "worker/job/"))
}

func (s source) shapeFaults() []string {
	var faults []string
	if lines := strings.Count(s.text, "\n"); lines > maxFileLines {
		faults = append(faults, fmt.Sprintf("%s: %d lines, at most %d", s.path, lines, maxFileLines))
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		lines := s.set.Position(f.End()).Line - s.line(f) + 1
		switch {
		case f.Name.Name == "init" && f.Recv == nil:
			faults = append(faults, s.fault(f, "no init"))
		case f.Name.Name == "main" && s.file.Name.Name == "main" && lines > maxMainLines:
			faults = append(faults, s.fault(f, "main has %d lines, at most %d", lines, maxMainLines))
		case lines > maxFunctionLines && !s.isTest():
			faults = append(faults, s.fault(f, "%s has %d lines, at most %d", f.Name.Name, lines, maxFunctionLines))
		}
	}
	return faults
}

// globalFaults: no package variables except sentinels and embedded files. A reason beside one ("// global: ...") excuses it.
func (s source) globalFaults() []string {
	if s.isTest() {
		return nil
	}
	var faults []string
	for _, d := range s.file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			reason := v.Doc.Text() + v.Comment.Text() + g.Doc.Text()
			name := v.Names[0].Name
			if name == "_" || strings.HasPrefix(strings.ToLower(name), "err") || strings.Contains(reason, "global: ") ||
				strings.Contains(s.embeds(g), name) {
				continue
			}
			faults = append(faults, s.fault(v, "package variable %s: only sentinels and embedded files", name))
		}
	}
	return faults
}

// embeds returns the source of a declaration that carries go:embed, or "".
func (s source) embeds(g *ast.GenDecl) string {
	text := s.text[s.set.Position(g.Pos()).Offset:s.set.Position(g.End()).Offset]
	if g.Doc != nil {
		for _, c := range g.Doc.List {
			text = c.Text + "\n" + text
		}
	}
	if strings.Contains(text, "//go:embed") {
		return text
	}
	return ""
}

func (s source) callFault(call *ast.CallExpr) string {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	name := selector.Sel.Name
	receiver, _ := selector.X.(*ast.Ident)
	switch {
	case receiver != nil && receiver.Name == "time" && name == "Sleep" && !s.virtual(call):
		return s.fault(call, "never sleep to wait")
	case s.isTest() && (name == "Skip" || name == "Skipf" || name == "SkipNow") && receiver != nil && len(receiver.Name) <= 2:
		return s.fault(call, "a missing service fails, it never skips")
	case !s.isTest() && receiver != nil && receiver.Name == "http" && slices.Contains([]string{"Get", "Post", "PostForm", "Head"}, name):
		return s.fault(call, "never the default HTTP client")
	}
	return ""
}

// virtual: in a test's bubble of virtual time, sleeping is how time passes. The line says so.
func (s source) virtual(call *ast.CallExpr) bool {
	rest := s.text[s.set.Position(call.End()).Offset:]
	line, _, _ := strings.Cut(rest, "\n")
	return s.isTest() && strings.Contains(line, "// virtual") && strings.Contains(s.text, "testing/synctest")
}

// wordRules are patterns that no file may hold, with the reason.
func wordRules() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"list columns, never *":                       regexp.MustCompile(`(?i)SELECT[[:space:]]+\*`),
		"never the default HTTP client":               regexp.MustCompile(`http\.Default` + `Client`),
		"every disabled lint has its reason":          regexp.MustCompile(`//(nolint|lint:ignore [A-Z0-9]+)[[:space:]]*\n`),
		"TODO carries its reason":                     regexp.MustCompile(`(?m)\b(TODO|FIXME|XXX)\b:?[[:space:]]*$`),
		"no transaction outlives a round trip by SET": regexp.MustCompile(`(?m)"SET (SESSION )?[a-z_]+ `),
	}
}

func (s source) textFaults() []string {
	if strings.HasPrefix(s.path, "integration/layout/") {
		return nil // the rules themselves
	}
	var faults []string
	for reason, pattern := range wordRules() {
		if at := pattern.FindStringIndex(s.text); at != nil {
			faults = append(faults, fmt.Sprintf("%s:%d: %s", s.path, 1+strings.Count(s.text[:at[0]], "\n"), reason))
		}
	}
	return faults
}

// TestHouseRules: the rules of the code that no linter knows.
func TestHouseRules(t *testing.T) {
	for _, s := range sources(t) {
		for _, fault := range s.faults() {
			t.Error(fault)
		}
	}
}

// TestHouseRulesCatchFaults: each rule sees the fault that it is for.
func TestHouseRulesCatchFaults(t *testing.T) {
	long := "package ledger\nfunc long() {\n" + strings.Repeat("\t_ = 1\n", maxFunctionLines) + "}\n"
	for name, c := range map[string]struct{ path, text, want string }{
		"sleep":    {"worker/x_test.go", "package worker\nimport \"time\"\nfunc f() { time.Sleep(1) }\n", "never sleep"},
		"skip":     {"worker/x_test.go", "package worker\nimport \"testing\"\nfunc f(t *testing.T) { t.Skip() }\n", "never skips"},
		"float":    {"ledger/x.go", "package ledger\nfunc f(x float64) {}\n", "no float"},
		"init":     {"ledger/x.go", "package ledger\nfunc init() {}\n", "no init"},
		"global":   {"ledger/x.go", "package ledger\nvar cache = map[string]int{}\n", "package variable cache"},
		"star":     {"ledger/x.go", "package ledger\nconst q = `SELECT * FROM due`\n", "list columns"},
		"client":   {"bankclient/x.go", "package bankclient\nimport \"net/http\"\nvar errC = http.DefaultClient\n", "default HTTP client"},
		"get":      {"bankclient/x.go", "package bankclient\nimport \"net/http\"\nfunc f() { http.Get(\"\") }\n", "default HTTP client"},
		"function": {"ledger/x.go", long, "at most 70"},
		"file":     {"ledger/x.go", "package ledger\n" + strings.Repeat("\n", maxFileLines), "at most 600"},
		"todo":     {"ledger/x.go", "package ledger\n// TODO\n", "TODO carries"},
	} {
		s, err := parse(c.path, c.text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if faults := s.faults(); len(faults) == 0 || !strings.Contains(strings.Join(faults, "\n"), c.want) {
			t.Errorf("%s: faults %q, want one with %q", name, faults, c.want)
		}
	}
}

// TestTopLevel: the top level is fixed.
func TestTopLevel(t *testing.T) {
	allowed := []string{"go.mod", "go.sum", "cmd", "worker", "bankclient", "ledger", "migrations", "deploy", "integration", "README.md",
		"ARCHITECTURE.md", "CHANGELOG.md", "LICENSE"}
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s has no place at the top level", e.Name())
		}
	}
	for _, needed := range allowed[:10] {
		if _, err := os.Stat(filepath.Join(root, needed)); err != nil {
			t.Errorf("missing: %v", err)
		}
	}
}

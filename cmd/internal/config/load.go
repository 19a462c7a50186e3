package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Input is where settings come from. The zero value gives the defaults.
type Input struct {
	File   string                      // YAML file; empty = PAIDONCE_CONFIG, else none
	Lookup func(string) (string, bool) // environment; nil = none
	Names  []string                    // of the variables that are set in the environment, to find misspelt ones; nil = nobody looks
	Flags  map[string]string           // path -> text, of the flags that were given
	Rules  []Rule                      // what other packages demand of the settings
	Stdin  io.Reader                   // read when a secret file is "-"
}

// Rule gives what another package finds wrong with the settings. Path is the setting that the problem is best mended at.
type Rule func(*Config) []Problem

// Load reads the settings and checks them against each other. An error is of type Problems and lists all of them.
func Load(in Input) (*Config, error) {
	c, problems := read(in)
	problems = append(problems, c.check()...)
	for _, rule := range in.Rules {
		for _, p := range rule(c) {
			p.Place = c.Origin(p.Path)
			problems = append(problems, p)
		}
	}
	return c, sorted(problems).err()
}

// read takes every setting from the first place that has it.
func read(in Input) (*Config, Problems) {
	c := &Config{
		Partners: map[string]*Partner{}, Routes: map[string]*Route{}, Sources: map[string]*Source{},
		Batch:   Batch{Templates: map[string]*Template{}},
		origins: map[string]string{}, stdin: in.Stdin,
	}
	for _, s := range Settings() {
		if !strings.Contains(s.Path, "<name>") {
			applyDefault(c, s, "")
		}
	}
	lookup := in.Lookup
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	problems := readFile(c, in.File, lookup)
	problems = append(problems, readEnvironment(c, lookup)...)
	problems = append(problems, unknownVariables(in.Names)...)
	return c, append(problems, readFlags(c, in.Flags)...)
}

func readFile(c *Config, file string, lookup func(string) (string, bool)) Problems {
	place := "flag --config"
	if file == "" {
		file, _ = lookup("PAIDONCE_CONFIG")
		place = "environment PAIDONCE_CONFIG"
	}
	if file == "" {
		return nil
	}
	raw, err := os.ReadFile(file) //nolint:gosec // the operator names the file
	if err != nil {
		return Problems{{Place: place, Text: "cannot read " + file + ": " + reason(err)}}
	}
	return decode(c, file, raw)
}

func readEnvironment(c *Config, lookup func(string) (string, bool)) Problems {
	var problems Problems
	for _, s := range Settings() {
		name := s.Env()
		if _, given := lookup(variable(s.Path)); s.Guarded && given {
			problems = append(problems, Problem{Place: "environment " + variable(s.Path), Path: s.Path, Text: guarded})
		}
		if name == "" {
			continue
		}
		if text, ok := lookup(name); ok {
			c.origins[s.Path] = "environment " + name
			if err := assign(s.at(c, ""), text); err != nil {
				problems = append(problems, Problem{Place: c.origins[s.Path], Path: s.Path, Text: err.Error()})
			}
		}
	}
	return problems
}

// unknownVariables refuses what looks like a setting and is none: nothing would read it.
func unknownVariables(names []string) Problems {
	const ours = "PAIDONCE_"
	known := []string{"config"}
	for _, s := range Settings() {
		if !strings.Contains(s.Path, "<name>") {
			known = append(known, strings.ToLower(strings.TrimPrefix(variable(s.Path), ours))) // a guarded one has a refusal of its own
		}
	}
	var problems Problems
	for _, name := range slices.Sorted(slices.Values(names)) {
		word, is := strings.CutPrefix(name, ours)
		if !is || slices.Contains(known, strings.ToLower(word)) || ofOthers(name) {
			continue
		}
		text := "is not a setting"
		if meant := nearest(word, known); meant != "" {
			text += "; did you mean " + ours + strings.ToUpper(meant) + "?"
		}
		problems = append(problems, Problem{Place: "environment", Path: name, Text: text})
	}
	return problems
}

// ofOthers says that a variable is not meant for us: Kubernetes describes every service to every container, one named paidonce too, and the tests
// have some.
func ofOthers(name string) bool {
	return strings.HasPrefix(name, "PAIDONCE_TEST_") || name == "PAIDONCE_PG_BIN" || serviceVariable().MatchString(name)
}

// serviceVariable matches the names that Kubernetes gives.
func serviceVariable() *regexp.Regexp {
	return regexp.MustCompile(`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)
}

// guarded is said of a setting that is not where it would be taken from.
const guarded = "is taken from the file of settings alone: it says what one person may do without a second one, so it is not theirs to say"

func readFlags(c *Config, flags map[string]string) Problems {
	var problems Problems
	for _, path := range slices.Sorted(maps.Keys(flags)) {
		s, name, ok := find(c, path)
		if !ok {
			text := "is not a setting"
			if meant := nearest(path, c.paths()); meant != "" {
				text += "; did you mean " + meant + "?"
			}
			problems = append(problems, Problem{Place: "flag", Path: path, Text: text})
			continue
		}
		if s.Secret && URL(flags[path]).HasSecret() {
			problems = append(problems, Problem{Place: "flag", Path: path, Text: "carries a secret, and flags are visible to others: use a *_file setting"})
			continue
		}
		if s.Guarded {
			problems = append(problems, Problem{Place: "flag", Path: path, Text: guarded})
			continue
		}
		c.origins[path] = "flag"
		if err := assign(s.at(c, name), flags[path]); err != nil {
			problems = append(problems, Problem{Place: "flag", Path: path, Text: err.Error()})
		}
	}
	return problems
}

// find gives the setting that a path with a real name means.
func find(c *Config, path string) (Setting, string, bool) {
	for _, s := range Settings() {
		if s.Path == path {
			return s, "", true
		}
		before, behind, named := strings.Cut(s.Path, "<name>")
		name, under := strings.CutPrefix(path, before)
		name, whole := strings.CutSuffix(name, behind)
		if named && under && whole && s.at(c, name) != nil {
			return s, name, true
		}
	}
	return Setting{}, "", false
}

// paths lists every setting that can be set now, with real names.
func (c *Config) paths() []string {
	var paths []string
	for _, s := range Settings() {
		group, _, named := strings.Cut(s.Path, ".<name>.")
		if !named {
			paths = append(paths, s.Path)
			continue
		}
		for _, name := range c.names(group) {
			paths = append(paths, show(s.Path, name))
		}
	}
	return paths
}

// names lists the partners, routes, sources or templates in order.
func (c *Config) names(group string) []string {
	switch group {
	case "partners":
		return slices.Sorted(maps.Keys(c.Partners))
	case "routes":
		return slices.Sorted(maps.Keys(c.Routes))
	case "batch.templates":
		return slices.Sorted(maps.Keys(c.Batch.Templates))
	default:
		return slices.Sorted(maps.Keys(c.Sources))
	}
}

func applyDefault(c *Config, s Setting, name string) {
	target := s.at(c, name)
	if s.Default == "" {
		return
	}
	if err := assign(target, s.Default); err != nil {
		panic("the default of " + s.Path + " " + err.Error())
	}
}

func sorted(problems Problems) Problems {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Path, b.Path) })
	return problems
}

// reason says why a file cannot be read, without naming it a second time.
func reason(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err.Error()
	}
	return err.Error()
}

// CheckFiles tries every secret file that is set, and lists those that cannot be used.
func (c *Config) CheckFiles() error {
	var problems Problems
	for _, path := range c.paths() {
		s, name, _ := find(c, path)
		target, ok := s.at(c, name).(*string)
		if !ok || !strings.HasSuffix(path, "_file") || *target == "" || *target == "-" {
			continue
		}
		if strings.HasPrefix(path, "sources.") { // one token a line
			var more Problems
			if _, err := c.SourceTokens(name); errors.As(err, &more) {
				problems = append(problems, more...)
			}
			continue
		}
		if strings.HasPrefix(path, "nats.") { // certificates and credentials have many lines
			if _, err := os.ReadFile(*target); err != nil { //nolint:gosec // the operator names the file
				problems = append(problems, Problem{Place: c.Origin(path), Path: path, Text: "cannot be read: " + reason(err)})
			}
			continue
		}
		if _, err := ReadSecret(*target, nil); err != nil {
			problems = append(problems, Problem{Place: c.Origin(path), Path: path, Text: err.Error()})
		}
	}
	return problems.err()
}

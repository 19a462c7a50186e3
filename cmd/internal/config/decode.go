package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/paidonce/paidonce/worker/job"
)

// decoder walks the file's tree along the list of settings, so that every problem is found, not only the first.
type decoder struct {
	file     string
	config   *Config
	settings []Setting
	problems Problems
}

// decode reads the file's bytes into c.
func decode(c *Config, file string, raw []byte) Problems {
	d := &decoder{file: file, config: c, settings: Settings()}
	tree, err := parser.ParseBytes(raw, 0, parser.AllowDuplicateMapKey()) // entry reports them with the others
	if err != nil {
		return Problems{syntaxProblem(file, err)}
	}
	documents := 0
	for _, doc := range tree.Docs {
		if doc.Body == nil {
			continue
		}
		if documents++; documents > 1 {
			d.problem(doc.Body, "", "a second document; the file must hold one")
			break
		}
		d.mapping(doc.Body, "", "")
	}
	return d.problems
}

func syntaxProblem(file string, err error) Problem {
	var syntax yaml.Error
	if errors.As(err, &syntax) && syntax.GetToken() != nil {
		at := syntax.GetToken().Position
		return Problem{Place: fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column), Text: "is not YAML: " + syntax.GetMessage()}
	}
	return Problem{Place: file, Text: "is not YAML"}
}

// mapping reads one level. path is the setting's path with <name>, name the partner, route, source or template it is under.
func (d *decoder) mapping(node ast.Node, path, name string) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		d.problem(node, show(path, name), "is empty; leave it out or fill it")
		return
	default:
		d.problem(node, show(path, name), "must hold names and values")
		return
	}
	seen := make(map[string]bool, len(values))
	for _, value := range values {
		key, ok := keyText(value.Key)
		if !ok {
			d.problem(value.Key, show(path, name), "has a key that is not plain text; anchors and merges are not used here")
			continue
		}
		if seen[key] {
			d.problem(value.Key, show(join(path, key), name), "is set twice")
			continue
		}
		seen[key] = true
		d.entry(value, path, name, key)
	}
}

// entry reads one key of a level and what is below it.
func (d *decoder) entry(value *ast.MappingValueNode, path, name, key string) {
	below := d.below(path)
	if slices.Contains(below, "<name>") {
		if !job.ValidName(key) {
			d.problem(value.Key, join(path, key), "is not a name: use a-z, 0-9, - and _, at most 63, starting with a letter or digit")
			return
		}
		d.add(path, key)
		d.config.origins[join(path, key)] = d.place(value.Key)
		d.mapping(value.Value, join(path, "<name>"), key)
		return
	}
	if !slices.Contains(below, key) {
		text := "is not a setting"
		if meant := nearest(key, below); meant != "" {
			text += fmt.Sprintf("; did you mean %s?", meant)
		} else {
			text += "; here are known: " + strings.Join(below, ", ")
		}
		d.problem(value.Key, show(join(path, key), name), text)
		return
	}
	full := join(path, key)
	for _, s := range d.settings {
		if s.Path == full {
			d.value(value.Value, s, name)
			return
		}
	}
	d.mapping(value.Value, full, name)
}

// value reads the value of one setting.
func (d *decoder) value(node ast.Node, s Setting, name string) {
	path, target := show(s.Path, name), s.at(d.config, name)
	d.config.origins[path] = d.place(node)
	if list, ok := node.(*ast.SequenceNode); ok {
		items := make([]string, 0, len(list.Values))
		for _, item := range list.Values {
			text, err := scalarText(item)
			if err != nil {
				d.problem(item, path, err.Error())
				return
			}
			items = append(items, text)
		}
		if err := assignList(target, items); err != nil {
			d.problem(node, path, err.Error())
		}
		return
	}
	text, err := scalarText(node)
	if err == nil && isList(target) {
		err = errors.New("must be a list, such as [a, b]")
	}
	if err == nil {
		err = assign(target, text)
	}
	if err != nil {
		d.problem(node, path, err.Error())
	}
}

// add makes the entry of a named partner, route, source or template, with its defaults.
func (d *decoder) add(path, name string) {
	switch path {
	case "partners":
		d.config.Partners[name] = &Partner{}
	case "routes":
		d.config.Routes[name] = &Route{}
	case "sources":
		d.config.Sources[name] = &Source{}
	case "batch.templates":
		d.config.Batch.Templates[name] = &Template{}
	default:
		panic("the list of settings has names under " + path + ", which the decoder does not know")
	}
	for _, s := range d.settings {
		if strings.HasPrefix(s.Path, path+".<name>.") {
			applyDefault(d.config, s, name)
		}
	}
}

// below lists the keys that may stand under path.
func (d *decoder) below(path string) []string {
	var keys []string
	for _, s := range d.settings {
		rest := s.Path
		if path != "" {
			if !strings.HasPrefix(rest, path+".") {
				continue
			}
			rest = rest[len(path)+1:]
		}
		key, _, _ := strings.Cut(rest, ".")
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

func (d *decoder) problem(node ast.Node, path, text string) {
	d.problems = append(d.problems, Problem{Place: d.place(node), Path: path, Text: text})
}

func (d *decoder) place(node ast.Node) string {
	at := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", d.file, at.Line, at.Column)
}

func keyText(key ast.MapKeyNode) (string, bool) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return key.GetToken().Value, true
	}
	return "", false
}

// scalarText gives the text as the person wrote it, so that an amount never passes through a float.
func scalarText(node ast.Node) (string, error) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return node.GetToken().Value, nil
	case *ast.NullNode:
		return "", errors.New("is empty; leave it out or fill it")
	}
	return "", errors.New("must be a plain value")
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// show puts the name of the entry into a path.
func show(path, name string) string {
	if name == "" {
		return path
	}
	return strings.Replace(path, "<name>", name, 1)
}

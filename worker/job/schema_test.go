package job

import (
	"bytes"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compiledSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("job.json", doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("job.json") // checks it against the meta-schema of 2020-12 that it names
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func checkSchema(schema *jsonschema.Schema, payload []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

func TestSchema_AcceptsWhatTheDecoderAccepts(t *testing.T) {
	schema := compiledSchema(t)
	docs := goodDocuments()
	for name, doc := range changes() {
		docs["changed "+name] = doc
	}
	for name, doc := range docs {
		mustDecode(t, doc)
		if err := checkSchema(schema, []byte(doc)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The other way round: what the decoder refuses, the schema refuses, but for what a schema cannot express. Those must be
// accepted by it, so that the list in the comment of Schema stays true.
func TestSchema_RefusesWhatTheDecoderRefuses(t *testing.T) {
	schema := compiledSchema(t)
	asked := 0
	for name, d := range badDocuments() {
		if d.bytes {
			continue
		}
		asked++
		err := checkSchema(schema, []byte(d.doc))
		switch {
		case err == nil && !d.schemaSilent:
			t.Errorf("%s: accepted", name)
		case err != nil && d.schemaSilent:
			t.Errorf("%s: refused, but said to be beyond a schema: %v", name, err)
		}
	}
	if asked < 200 {
		t.Errorf("only %d documents were asked about", asked)
	}
}

func TestSchema_IsACopy(t *testing.T) {
	Schema()[0] = 'x'
	if Schema()[0] != '{' {
		t.Error("a caller changed the schema")
	}
}

package gateway_test

import (
	"bytes"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/paidonce/paidonce/cmd/internal/gateway"
	"github.com/paidonce/paidonce/worker/job"
)

// object is a part of a JSON document.
type object = map[string]any

// document is the published document, and what is in it as schemas.
type document struct {
	root     object
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by JSON pointer
}

func readDocument(t testing.TB) *document {
	t.Helper()
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(gateway.OpenAPI()))
	if err != nil {
		t.Fatal(err)
	}
	d := &document{root: root.(object), compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}}
	d.compiler.AssertFormat()
	if err := d.compiler.AddResource("urn:openapi", root); err != nil {
		t.Fatal(err)
	}
	d.compileAll(t, "", root)
	return d
}

// compileAll compiles every schema of the document, so that none is wrong and requests need no lock.
func (d *document) compileAll(t testing.TB, pointer string, v any) {
	switch v := v.(type) {
	case object:
		for name, one := range v {
			below := pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
			if name == "schema" || strings.HasSuffix(pointer, "/components/schemas") {
				schema, err := d.compiler.Compile("urn:openapi#" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(below))
				if err != nil {
					t.Fatalf("%s: %v", below, err)
				}
				d.schemas[below] = schema
				continue
			}
			d.compileAll(t, below, one)
		}
	case []any:
		for i, one := range v {
			d.compileAll(t, pointer+"/"+strconv.Itoa(i), one)
		}
	}
}

// at follows a JSON pointer, and references on the way.
func (d *document) at(pointer string) (object, string) {
	here, at := d.root, ""
	for _, step := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		next, ok := here[strings.NewReplacer("~1", "/", "~0", "~").Replace(step)].(object)
		if !ok {
			return nil, ""
		}
		here, at = next, at+"/"+step
		if ref, ok := here["$ref"].(string); ok {
			here, at = d.at(strings.TrimPrefix(ref, "#"))
		}
	}
	return here, at
}

func operationPointer(method, path string) string {
	template := regexp.MustCompile(`^/v1/withdrawals/[^/]+`).ReplaceAllString(path, "/v1/withdrawals/{key}")
	return "/paths/" + strings.ReplaceAll(template, "/", "~1") + "/" + strings.ToLower(method)
}

// check holds one exchange against the document: the status is listed, its headers and body are as described, and so is the body of an
// accepted request. Paths and methods that the document does not have are answered by problems.
func (d *document) check(method, path, request string, a *answer) error {
	if method == http.MethodHead {
		return nil
	}
	operation := operationPointer(method, path)
	if found, _ := d.at(operation); found == nil {
		if a.status != http.StatusNotFound && a.status != http.StatusMethodNotAllowed {
			return fmt.Errorf("%s %s is not in the document and was answered %d", method, path, a.status)
		}
		return d.matches("/components/schemas/Problem", a.text)
	}
	response, pointer := d.at(operation + "/responses/" + strconv.Itoa(a.status))
	if response == nil {
		return fmt.Errorf("%s %s: status %d is not in the document", method, path, a.status)
	}
	if err := d.checkHeaders(pointer, response, a); err != nil {
		return fmt.Errorf("%s %s, %d: %w", method, path, a.status, err)
	}
	kind := a.header.Get("Content-Type")
	if err := d.matches(pointer+"/content/"+strings.ReplaceAll(kind, "/", "~1")+"/schema", a.text); err != nil {
		return fmt.Errorf("%s %s, %d: answer: %w\n%s", method, path, a.status, err, a.text)
	}
	if _, takesBody := d.at(operation + "/requestBody"); takesBody != "" && a.status < 300 {
		if err := d.matches("/components/schemas/WithdrawalRequest", request); err != nil {
			return fmt.Errorf("%s %s: accepted a request that is not as described: %w", method, path, err)
		}
	}
	return nil
}

func (d *document) checkHeaders(pointer string, response object, a *answer) error {
	described, _ := response["headers"].(object)
	for name := range described {
		header, at := d.at(pointer + "/headers/" + name)
		value := a.header.Get(name)
		if value == "" {
			if header["required"] == true {
				return fmt.Errorf("header %s is missing", name)
			}
			continue
		}
		if err := d.schemas[at+"/schema"].Validate(value); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for _, name := range []string{"Location", "Retry-After", "Idempotent-Replayed", "Preference-Applied", "Idempotency-Key", "Www-Authenticate"} {
		known := slices.ContainsFunc(keysOf(described), func(k string) bool { return strings.EqualFold(k, name) })
		if a.header.Get(name) != "" && !known {
			return fmt.Errorf("header %s is not in the document", name)
		}
	}
	return nil
}

func keysOf(o object) []string {
	keys := make([]string, 0, len(o))
	for k := range o {
		keys = append(keys, k)
	}
	return keys
}

func (d *document) matches(pointer, text string) error {
	schema := d.schemas[pointer]
	if schema == nil {
		return fmt.Errorf("no schema at %s", pointer)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(v)
}

// TestOpenAPI_IsServedAndWhole: what is served is what the tests check against, and every reference in it leads somewhere.
func TestOpenAPI_IsServedAndWhole(t *testing.T) {
	c := newCity(t)
	a := c.newGate(c.ledger, nil).must("GET", "/openapi.json", nil, "")
	if a.status != http.StatusOK || a.text != string(gateway.OpenAPI()) || c.api.root["openapi"] != "3.1.0" {
		t.Errorf("status %d, %d bytes", a.status, len(a.text))
	}
	for _, ref := range regexp.MustCompile(`"\$ref": "#([^"]+)"`).FindAllStringSubmatch(a.text, -1) {
		if found, _ := c.api.at(ref[1]); found == nil {
			t.Errorf("%s leads nowhere", ref[1])
		}
	}
	if len(c.api.schemas) < 20 {
		t.Errorf("only %d schemas were compiled", len(c.api.schemas))
	}
}

// TestOpenAPI_ARequestIsAJobWithoutVersionAndKey: the two published schemas never drift apart.
func TestOpenAPI_ARequestIsAJobWithoutVersionAndKey(t *testing.T) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(job.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	schema := parsed.(object)
	members, required := schema["properties"].(object), schema["required"].([]any)
	delete(members, "v")
	delete(members, "key")
	required = slices.DeleteFunc(required, func(name any) bool { return name == "v" || name == "key" })
	request, _ := readDocument(t).at("/components/schemas/WithdrawalRequest")
	got := request["properties"].(object)
	delete(got, "route")
	if !reflect.DeepEqual(inDocument(members), any(got)) {
		t.Error("the members differ from those of worker/job/job.schema.json")
	}
	if !reflect.DeepEqual(append([]any{"route"}, required...), request["required"]) {
		t.Errorf("required %v", request["required"])
	}
	for name, one := range schema["$defs"].(object) {
		found, _ := readDocument(t).at("/components/schemas/beneficiary_" + name)
		if !reflect.DeepEqual(inDocument(one), any(found)) {
			t.Errorf("beneficiary_%s differs from $defs/%s of worker/job/job.schema.json", name, name)
		}
	}
}

// inDocument moves the references of the job's schema to where the document has its schemas.
func inDocument(v any) any {
	switch v := v.(type) {
	case object:
		moved := object{}
		for name, one := range v {
			moved[name] = inDocument(one)
		}
		return moved
	case []any:
		moved := make([]any, len(v))
		for i, one := range v {
			moved[i] = inDocument(one)
		}
		return moved
	case string:
		return strings.Replace(v, "#/$defs/", "#/components/schemas/beneficiary_", 1)
	}
	return v
}

// TestOpenAPI_TheCheckSeesFaults: a check that always agrees would prove nothing.
func TestOpenAPI_TheCheckSeesFaults(t *testing.T) {
	d := readDocument(t)
	good := `{"key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","route":"gbp-fps","state":"open","in_doubt":false,"amount":"49.00","currency":"GBP","created_at":"2026-12-24T00:00:00Z"}`
	header := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"x"}, "Location": {"/v1/withdrawals/01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"}}
	if err := d.check("POST", "/v1/withdrawals", body, &answer{status: 202, header: header, text: good}); err != nil {
		t.Fatal(err)
	}
	bare := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"x"}}
	for name, a := range map[string]*answer{
		"a status":  {status: 204, header: header, text: good},
		"a member":  {status: 202, header: header, text: strings.Replace(good, "{", `{"debtor_account":"x",`, 1)},
		"a state":   {status: 202, header: header, text: strings.Replace(good, "open", "pending", 1)},
		"a missing": {status: 202, header: header, text: strings.Replace(good, `"state":"open",`, "", 1)},
		"a time":    {status: 202, header: header, text: strings.Replace(good, "2026-12-24T00:00:00Z", "yesterday", 1)},
		"no header": {status: 202, header: bare, text: good},
		"a type":    {status: 401, header: header, text: good},
	} {
		if d.check("POST", "/v1/withdrawals", body, a) == nil {
			t.Errorf("%s: not seen", name)
		}
	}
	if d.check("POST", "/v1/withdrawals", with(`"49.00"`, `49`), &answer{status: 202, header: header, text: good}) == nil {
		t.Error("a request that is not as described: not seen")
	}
}

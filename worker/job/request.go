package job

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// routePath is where a request names its route.
const routePath = "/route"

// DecodeRequest reads a job as it comes over HTTP: the document of Decode without v and key, which stand in path and header there, and with a
// member route. It is as strict as Decode, and gives a job that Encode takes. The error is always a *Fault.
func DecodeRequest(source string, key uuid.UUID, body []byte) (Job, error) {
	if !ValidName(source) {
		return Job{}, refuse(CodeSourceName, "", "the source is no possible name")
	}
	if fault := checkBytes(body); fault != nil {
		return Job{}, fault
	}
	r := requestReader{reader: reader{
		decoder: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), // as in Decode
		payload: string(body),
		job:     Job{Source: source, Key: key},
		seen:    setOf(fieldVersion, fieldKey),
	}}
	if fault := r.readRequest(); fault != nil {
		return Job{}, fault
	}
	if r.job.Route == "" {
		return Job{}, refuse(CodeMissing, routePath, "the contract requires it")
	}
	if fault := r.checkWhole(); fault != nil {
		return Job{}, fault
	}
	return r.job, nil
}

// requestReader is a reader that knows a route and neither v nor key.
type requestReader struct {
	reader
}

// readRequest is readDocument for a request.
func (r *requestReader) readRequest() *Fault { return r.readMembers(r.readRequestMember) }

// readMembers reads one object and nothing after it; read takes each member by its raw name.
func (r *requestReader) readMembers(read func(name string) *Fault) *Fault {
	if _, fault := r.expect('{', fieldNone); fault != nil {
		return fault
	}
	for {
		name, end, fault := r.readRawName(fieldNone)
		if fault != nil {
			return fault
		}
		if end {
			break
		}
		if fault := read(name); fault != nil {
			return fault
		}
	}
	if _, err := r.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return refuse(CodeTrailingData, "", "something follows the object")
	}
	return nil
}

func (r *requestReader) readRequestMember(name string) *Fault {
	if name == "route" {
		return r.readRoute()
	}
	f := topField(name)
	switch {
	case f == fieldVersion || f == fieldKey:
		return refuse(CodeUnknownName, f.path(), "not in the body: the version stands in the path, the key in the header Idempotency-Key")
	case f == fieldNone && strings.EqualFold(name, "route"):
		return refuse(CodeCaseVariantName, routePath, "a name that differs from this one only by case")
	case f == fieldNone:
		return refuseName(fieldNone, name)
	case r.seen.has(f):
		return refuse(CodeDuplicateName, f.path(), "a name that stands twice in one object")
	}
	r.seen |= setOf(f)
	return r.readMember(f)
}

func (r *requestReader) readRoute() *Fault {
	if r.job.Route != "" {
		return refuse(CodeDuplicateName, routePath, "a name that stands twice in one object")
	}
	text, fault := r.readString(fieldNone, routePath)
	if fault != nil {
		return fault
	}
	if !ValidName(text) {
		return refuse(CodeRouteName, routePath, "is no possible name of a route")
	}
	r.job.Route = text
	return nil
}

package job

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads the payload of a job that arrived from source for route. The error is always a *Fault.
func Decode(source, route string, payload []byte) (Job, error) {
	if !ValidName(source) {
		return Job{}, refuse(CodeSourceName, "", "the source in the subject is no possible name")
	}
	if !ValidName(route) {
		return Job{}, refuse(CodeRouteName, "", "the route in the subject is no possible name")
	}
	if fault := checkBytes(payload); fault != nil {
		return Job{}, fault
	}
	r := reader{
		// Names are compared here, against the contract and by case too; the decoder's own test for duplicates would
		// cost a map. UTF-8 has been checked; what the option leaves are half surrogate pairs, which unquote refuses.
		decoder: jsontext.NewDecoder(bytes.NewBuffer(payload), jsontext.AllowDuplicateNames(true),
			jsontext.AllowInvalidUTF8(true)),
		payload: string(payload),
		job:     Job{Source: source, Route: route},
	}
	if fault := r.readDocument(); fault != nil {
		return Job{}, fault
	}
	if fault := r.checkWhole(); fault != nil {
		return Job{}, fault
	}
	return r.job, nil
}

// checkBytes refuses what must not even be looked at as JSON.
func checkBytes(payload []byte) *Fault {
	switch {
	case len(payload) > MaxBytes:
		return refuse(CodeTooLarge, "", "more than 65536 bytes")
	case bytes.HasPrefix(payload, []byte("\xef\xbb\xbf")),
		bytes.HasPrefix(payload, []byte("\xff\xfe")), bytes.HasPrefix(payload, []byte("\xfe\xff")):
		return refuse(CodeBOM, "", "begins with a byte order mark")
	case bytes.IndexByte(payload, 0) >= 0:
		return refuse(CodeNULByte, "", "contains a NUL byte")
	case !utf8.Valid(payload):
		return refuse(CodeInvalidUTF8, "", "is not UTF-8")
	}
	return nil
}

// reader reads one document.
type reader struct {
	decoder *jsontext.Decoder
	payload string // as a string once, so that every text is a part of it and no copy
	job     Job
	decimal string // amount and currency wait for each other
	seen    fields
}

// readDocument reads the one object and what follows it.
func (r *reader) readDocument() *Fault {
	if _, fault := r.expect('{', fieldNone); fault != nil {
		return fault
	}
	for {
		f, end, fault := r.readName(fieldNone, topField)
		if fault != nil {
			return fault
		}
		if end {
			break
		}
		if fault := r.readMember(f); fault != nil {
			return fault
		}
	}
	if _, err := r.decoder.ReadToken(); !errors.Is(err, io.EOF) {
		return refuse(CodeTrailingData, "", "something follows the object")
	}
	return nil
}

// readMember reads the value of one member of the document.
func (r *reader) readMember(f field) *Fault {
	switch f {
	case fieldVersion:
		return r.readVersion()
	case fieldBeneficiary:
		return r.readBeneficiary()
	case fieldMetadata:
		return r.readMetadata()
	}
	text, fault := r.readString(f, f.path())
	if fault != nil {
		return fault
	}
	return r.setText(f, text)
}

// setText checks one member that is text, and sets it.
func (r *reader) setText(f field, text string) (fault *Fault) {
	switch f {
	case fieldKey:
		r.job.Key, fault = checkKey(text)
	case fieldDebtorAccount:
		r.job.DebtorAccount, fault = checkText(f, text, MaxAccount)
	case fieldAmount:
		r.decimal = text
	case fieldCurrency:
		r.job.Amount.Currency, fault = checkCurrency(text)
	case fieldReference:
		r.job.Reference, fault = checkText(f, text, MaxReference)
	case fieldNotBefore:
		r.job.NotBefore, fault = checkTime(f, text)
	case fieldNotAfter:
		r.job.NotAfter, fault = checkTime(f, text)
	}
	return fault
}

func (r *reader) readVersion() *Fault {
	raw, fault := r.expect('0', fieldVersion)
	if fault != nil {
		return fault
	}
	if raw != "1" {
		return refuse(CodeVersionUnknown, fieldVersion.path(), "must be 1")
	}
	return nil
}

func (r *reader) readBeneficiary() *Fault {
	if _, fault := r.expect('{', fieldBeneficiary); fault != nil {
		return fault
	}
	for {
		f, end, fault := r.readName(fieldBeneficiary, beneficiaryField)
		if end || fault != nil {
			return fault
		}
		text, fault := r.readString(f, f.path())
		if fault != nil {
			return fault
		}
		if fault := setBeneficiary(&r.job.Beneficiary, f, text); fault != nil {
			return fault
		}
	}
}

func (r *reader) readMetadata() *Fault {
	if _, fault := r.expect('{', fieldMetadata); fault != nil {
		return fault
	}
	for {
		raw, end, fault := r.readRawName(fieldMetadata)
		if end || fault != nil {
			return fault
		}
		path := memberPath(fieldMetadata.path(), raw)
		if r.job.Metadata == nil {
			r.job.Metadata = make(map[string]string)
		}
		if _, ok := r.job.Metadata[raw]; ok {
			return refuse(CodeDuplicateName, path, "a name that stands twice in one object")
		}
		for name := range r.job.Metadata {
			if strings.EqualFold(name, raw) {
				return refuse(CodeCaseVariantName, path, "two names that differ only by case")
			}
		}
		if !validMetadataName(raw) {
			return refuse(CodeMetadataName, path, "names have 1 to 64 of a-z, A-Z, 0-9, '_', '-' and '.', a letter or digit first")
		}
		if len(r.job.Metadata) == MaxMetadata {
			return refuse(CodeMetadataTooMany, fieldMetadata.path(), "more than 32 members")
		}
		text, fault := r.readString(fieldMetadata, path)
		if fault != nil {
			return fault
		}
		if fault := checkCharacters(path, text, MaxMetadataValue); fault != nil {
			return fault
		}
		r.job.Metadata[raw] = text
	}
}

// readName reads the name of the next member of an object that the contract describes.
func (r *reader) readName(object field, known func(string) field) (f field, end bool, fault *Fault) {
	name, end, fault := r.readRawName(object)
	if end || fault != nil {
		return fieldNone, end, fault
	}
	f = known(name)
	if f == fieldNone {
		return fieldNone, false, refuseName(object, name)
	}
	if r.seen.has(f) {
		return fieldNone, false, refuse(CodeDuplicateName, f.path(), "a name that stands twice in one object")
	}
	r.seen |= setOf(f)
	return f, false, nil
}

// readRawName reads a name, or the end of the object.
func (r *reader) readRawName(object field) (name string, end bool, fault *Fault) {
	if r.decoder.PeekKind() == '}' {
		if _, err := r.decoder.ReadToken(); err != nil {
			return "", false, syntax(err, object)
		}
		return "", true, nil
	}
	raw, err := r.decoder.ReadValue()
	if err != nil {
		return "", false, syntax(err, object)
	}
	name, ok := r.unquote(raw)
	if !ok {
		return "", false, refuse(CodeInvalidUTF8, object.path(), "a name with half of a surrogate pair")
	}
	return name, false, nil
}

// expect reads a value of one kind: the begin of an object, or a number, whose text it gives.
func (r *reader) expect(kind jsontext.Kind, f field) (string, *Fault) {
	found := r.decoder.PeekKind()
	switch {
	case found == jsontext.KindInvalid || found == kind && kind == '{':
		_, err := r.decoder.ReadToken()
		if err != nil {
			return "", syntax(err, f)
		}
		return "", nil
	case found == kind:
		raw, err := r.decoder.ReadValue()
		if err != nil {
			return "", syntax(err, f)
		}
		return r.part(raw, 0), nil
	case f == fieldNone && found != '}' && found != ']':
		return "", refuse(CodeNotAnObject, "", "must be one JSON object")
	default:
		return "", refuseKind(found, kind, f.path())
	}
}

// readString reads a string value.
func (r *reader) readString(f field, path string) (string, *Fault) {
	found := r.decoder.PeekKind()
	if found != '"' && found != jsontext.KindInvalid {
		return "", refuseKind(found, '"', path)
	}
	raw, err := r.decoder.ReadValue()
	if err != nil {
		return "", syntax(err, f)
	}
	text, ok := r.unquote(raw)
	if !ok {
		return "", refuse(CodeInvalidUTF8, path, "half of a surrogate pair")
	}
	return text, nil
}

// unquote gives the text of a string that was just read; false when half of a surrogate pair stands in it.
func (r *reader) unquote(raw jsontext.Value) (string, bool) {
	if bytes.IndexByte(raw, '\\') < 0 {
		return r.part(raw, 1), true
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	return string(text), err == nil
}

// part gives the value that was just read, without margin bytes on both sides, as a part of the payload's string.
func (r *reader) part(raw jsontext.Value, margin int) string {
	end := int(r.decoder.InputOffset())
	return r.payload[end-len(raw)+margin : end-margin]
}

const syntaxDetail = "is not JSON, in this member or behind it"

// refuseKind says that a value has the wrong type.
func refuseKind(found, wanted jsontext.Kind, path string) *Fault {
	switch found {
	case 'n':
		return refuse(CodeNullValue, path, "null; leave the member out instead")
	case '}', ']':
		return refuse(CodeSyntax, path, syntaxDetail) // no value at all
	}
	switch wanted {
	case '{':
		return refuse(CodeWrongType, path, "must be an object")
	case '0':
		return refuse(CodeWrongType, path, "must be a number")
	default:
		return refuse(CodeWrongType, path, "must be a string")
	}
}

// syntax turns an error of the decoder into a fault. The error's own text quotes the payload and is dropped.
func syntax(err error, f field) *Fault {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(CodeTruncated, f.path(), "ends in the middle of the object")
	case errors.Is(err, io.EOF):
		return refuse(CodeEmpty, "", "there is nothing in it")
	default:
		return refuse(CodeSyntax, f.path(), syntaxDetail)
	}
}

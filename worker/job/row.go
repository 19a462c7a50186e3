package job

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// The members that only a row of a file has.
const (
	rowRefPath = "/row_ref"
	maxRowRef  = 140
)

// Texts are the members of a job as text, read from something that is no JSON, such as the cells of a row. "" is an absent member.
type Texts struct {
	DebtorAccount, Amount, Currency                                 string
	Name, IBAN, BIC, SortCode, AccountNumber, RoutingNumber, PixKey string
	Reference, NotBefore, NotAfter                                  string
}

// FromTexts checks texts as Decode checks the members of a document, and gives the same job. The error is always a *Fault. The texts may share
// memory with each other, and the job shares it with them.
func FromTexts(source, route string, key uuid.UUID, t *Texts) (Job, error) {
	if !ValidName(source) {
		return Job{}, refuse(CodeSourceName, "", "the source is no possible name")
	}
	if !ValidName(route) {
		return Job{}, refuse(CodeRouteName, routePath, "is no possible name of a route")
	}
	r := reader{job: Job{Source: source, Route: route, Key: key}, seen: setOf(fieldVersion, fieldKey)}
	if t.Name != "" || t.IBAN != "" || t.SortCode != "" || t.RoutingNumber != "" || t.AccountNumber != "" || t.PixKey != "" || t.BIC != "" {
		r.seen |= setOf(fieldBeneficiary)
	}
	for _, member := range [...]struct {
		f    field
		text string
	}{
		{fieldDebtorAccount, t.DebtorAccount}, {fieldAmount, t.Amount}, {fieldCurrency, t.Currency}, {fieldName, t.Name}, {fieldIBAN, t.IBAN},
		{fieldBIC, t.BIC}, {fieldSortCode, t.SortCode}, {fieldAccountNumber, t.AccountNumber}, {fieldRoutingNumber, t.RoutingNumber},
		{fieldPixKey, t.PixKey}, {fieldReference, t.Reference}, {fieldNotBefore, t.NotBefore}, {fieldNotAfter, t.NotAfter},
	} {
		if member.text == "" {
			continue
		}
		r.seen |= setOf(member.f)
		var fault *Fault
		if member.f.within() == fieldBeneficiary {
			fault = setBeneficiary(&r.job.Beneficiary, member.f, member.text)
		} else {
			fault = r.setText(member.f, member.text)
		}
		if fault != nil {
			return Job{}, fault
		}
	}
	if fault := r.checkWhole(); fault != nil {
		return Job{}, fault
	}
	return r.job, nil
}

// OwnOfRow is what a row says beside its job.
type OwnOfRow struct {
	Ref   string // row_ref; "" = none
	Route bool   // the row itself names its route
}

// DecodeRow reads one line of a file of jobs: the document of Decode without v and key, which the run gives it, and perhaps with route, where it
// goes another way than the rest of the file, and with row_ref, the reference under which the file's author knows the row. It is as strict as
// Decode. The key of the job is Nil. The error is always a *Fault.
func DecodeRow(source, route string, line []byte) (j Job, own OwnOfRow, err error) {
	if !ValidName(source) {
		return Job{}, OwnOfRow{}, refuse(CodeSourceName, "", "the source is no possible name")
	}
	if fault := checkBytes(line); fault != nil {
		return Job{}, OwnOfRow{}, fault
	}
	r := rowReader{requestReader: requestReader{reader: reader{
		decoder: jsontext.NewDecoder(bytes.NewBuffer(line), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), // as in Decode
		payload: string(line),
		job:     Job{Source: source},
		seen:    setOf(fieldVersion, fieldKey),
	}}}
	fault := r.readRow()
	own = OwnOfRow{Ref: r.rowRef, Route: r.job.Route != ""}
	if fault == nil && r.job.Route == "" {
		r.job.Route = route
		if !ValidName(route) {
			fault = refuse(CodeMissing, routePath, "neither the row nor the run names a route")
		}
	}
	if fault == nil {
		fault = r.checkWhole()
	}
	if fault != nil {
		return Job{}, own, fault
	}
	return r.job, own, nil
}

// rowReader is a requestReader that knows row_ref.
type rowReader struct {
	requestReader
	rowRef string
}

func (r *rowReader) readRow() *Fault { return r.readMembers(r.readRowMember) }

func (r *rowReader) readRowMember(name string) *Fault {
	f := topField(name)
	switch {
	case f == fieldVersion || f == fieldKey:
		return refuse(CodeUnknownName, f.path(), "not in a row: the run makes the keys")
	case f == fieldNone && name != "row_ref" && strings.EqualFold(name, "row_ref"):
		return refuse(CodeCaseVariantName, rowRefPath, "a name that differs from this one only by case")
	case name != "row_ref":
		return r.readRequestMember(name)
	case r.rowRef != "":
		return refuse(CodeDuplicateName, rowRefPath, "a name that stands twice in one object")
	}
	text, fault := r.readString(fieldNone, rowRefPath)
	if fault == nil {
		fault = CheckRowRef(text)
	}
	if fault == nil {
		r.rowRef = text
	}
	return fault
}

// CheckRowRef checks the reference under which the author of a file knows a row: text for people, as every other.
func CheckRowRef(text string) *Fault {
	if text == "" {
		return refuse(CodeTextEmpty, rowRefPath, "must not be empty")
	}
	return checkCharacters(rowRefPath, text, maxRowRef)
}

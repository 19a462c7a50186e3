package job

import "strings"

// field is a member that the contract knows.
type field uint8

const (
	fieldNone field = iota
	fieldVersion
	fieldKey
	fieldDebtorAccount
	fieldAmount
	fieldCurrency
	fieldBeneficiary
	fieldReference
	fieldNotBefore
	fieldNotAfter
	fieldMetadata
	fieldName // the first of the beneficiary
	fieldIBAN
	fieldBIC
	fieldSortCode
	fieldAccountNumber
	fieldRoutingNumber
	fieldPixKey
	fieldEnd
)

// fields is a set of members.
type fields uint32

func (s fields) has(f field) bool { return s&(1<<f) != 0 }

func setOf(list ...field) fields {
	var s fields
	for _, f := range list {
		s |= 1 << f
	}
	return s
}

// path is the member's JSON pointer. It is constant, so that a fault cannot carry anything out of the payload.
func (f field) path() string {
	switch f {
	case fieldVersion:
		return "/v"
	case fieldKey:
		return "/key"
	case fieldDebtorAccount:
		return "/debtor_account"
	case fieldAmount:
		return "/amount"
	case fieldCurrency:
		return "/currency"
	case fieldBeneficiary:
		return "/beneficiary"
	case fieldReference:
		return "/reference"
	case fieldNotBefore:
		return "/not_before"
	case fieldNotAfter:
		return "/not_after"
	case fieldMetadata:
		return "/metadata"
	case fieldName:
		return "/beneficiary/name"
	case fieldIBAN:
		return "/beneficiary/iban"
	case fieldBIC:
		return "/beneficiary/bic"
	case fieldSortCode:
		return "/beneficiary/sort_code"
	case fieldAccountNumber:
		return "/beneficiary/account_number"
	case fieldRoutingNumber:
		return "/beneficiary/routing_number"
	case fieldPixKey:
		return "/beneficiary/pix_key"
	default:
		return ""
	}
}

// name is the last part of the path.
func (f field) name() string {
	path := f.path()
	return path[strings.LastIndexByte(path, '/')+1:]
}

// within says in which object the member stands: fieldNone is the document.
func (f field) within() field {
	if f >= fieldName {
		return fieldBeneficiary
	}
	return fieldNone
}

func topField(name string) field {
	switch name {
	case "v":
		return fieldVersion
	case "key":
		return fieldKey
	case "debtor_account":
		return fieldDebtorAccount
	case "amount":
		return fieldAmount
	case "currency":
		return fieldCurrency
	case "beneficiary":
		return fieldBeneficiary
	case "reference":
		return fieldReference
	case "not_before":
		return fieldNotBefore
	case "not_after":
		return fieldNotAfter
	case "metadata":
		return fieldMetadata
	default:
		return fieldNone
	}
}

func beneficiaryField(name string) field {
	switch name {
	case "name":
		return fieldName
	case "iban":
		return fieldIBAN
	case "bic":
		return fieldBIC
	case "sort_code":
		return fieldSortCode
	case "account_number":
		return fieldAccountNumber
	case "routing_number":
		return fieldRoutingNumber
	case "pix_key":
		return fieldPixKey
	default:
		return fieldNone
	}
}

// refuseName says why a name is not one of the object's. A name that equals one but for case is its own fault: the usual
// JSON libraries take it for the same member, so two programs would read two different jobs. EqualFold knows the foldings
// of the long s and of the Kelvin sign as those libraries do.
func refuseName(object field, name string) *Fault {
	for f := fieldNone + 1; f < fieldEnd; f++ {
		if f.within() == object && strings.EqualFold(name, f.name()) {
			return refuse(CodeCaseVariantName, f.path(), "a name that differs from this one only by case")
		}
	}
	return refuse(CodeUnknownName, memberPath(object.path(), name), "a name that the contract does not know")
}

// memberPath names a member that the contract does not name, if the name is plain enough to be no person or account; if
// it is not, the object.
func memberPath(object, name string) string {
	if name == "" || len(name) > 32 {
		return object
	}
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && c != '_' {
			return object
		}
	}
	return object + "/" + name
}

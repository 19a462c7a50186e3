package file

import (
	"strings"

	"github.com/paidonce/paidonce/worker/job"
)

// checkSEPA limits name and reference to the Latin set of the EPC (EPC217-08): partners replace other characters as they like, and a name that was
// replaced may fail the check of the payee.
func checkSEPA(row *Row) *Fault {
	for _, text := range []struct {
		value job.Sensitive
		name  string
	}{{row.Job.Beneficiary.Name, "name"}, {row.Job.Reference, "reference"}} {
		if !sepaText(text.value.Reveal()) {
			return &Fault{Line: row.Line, Column: text.name, Code: "charset", Message: "has a character that is not in the character set of SEPA",
				Hint: "a-z A-Z 0-9 / - ? : ( ) . , ' + and space; write Mueller for Müller"}
		}
	}
	if id := row.EndToEndID; !sepaText(id) || strings.HasPrefix(id, "/") || strings.HasSuffix(id, "/") || strings.Contains(id, "//") {
		return &Fault{Line: row.Line, Column: "PmtInf/CdtTrfTxInf/PmtId/EndToEndId", Code: "charset", Message: "is no identification in the character set of SEPA",
			Hint: "as in names; and no slash at an end, nor two in a row"}
	}
	return nil
}

func sepaText(text string) bool {
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '/', c == '-', c == '?', c == ':', c == '(', c == ')', c == '.', c == ',', c == '\'', c == '+', c == ' ':
		default:
			return false
		}
	}
	return true
}

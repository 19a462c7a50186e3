package file

import (
	"strings"
	"testing"
)

// TestJ7_TheHeaderOfAFileInItsOwnWords is as exact as any other, and every cell of it is read as the template says.
func TestJ7_TheHeaderOfAFileInItsOwnWords(t *testing.T) {
	opt := plain()
	opt.Dialect.Columns = []string{"From=debtor_account", "Sum=amount", "Ccy=currency", "name", "a=b=iban", "Team=-", "Shift=-"}
	row := "cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,#REF!,=x\n"
	for header, want := range map[string]string{
		"From,Sum,Ccy,name,a=b,Team,Shift":                           "",
		"From,Sum,Ccy,name,a=b,Shift,Team":                           "1:columns_swapped",
		"Sum,From,Ccy,name,a=b,Team,Shift":                           "1:columns_swapped",
		"From,amount,Ccy,name,a=b,Team,Shift":                        "1:column_unknown",
		"From,sum,Ccy,name,a=b,Team,Shift":                           "1:column_unknown",
		"From,Sum,Ccy,name,a=b,Team":                                 "1:column_missing",
		"From,Sum,Ccy,name,a=b,Team,Team":                            "1:column_twice",
		"debtor_account,amount,currency,name,iban,Team,Shift":        "1:column_unknown",
		"From;Sum;Ccy;name;a=b;Team;Shift":                           "1:delimiter",
		"cust-1,49.00,GBP,A N Example,GB33BUKB20201555555555,100,a,": "1:header_missing",
	} {
		if report := mustCheck(t, header+"\n"+row, FormatCSV, opt, CheckOptions{}); codes(report) != want {
			t.Errorf("%s: %q, want %q", header, codes(report), want)
		}
	}
	var got Row
	report := mustCheck(t, "From,Sum,Ccy,name,a=b,Team,Shift\n"+row, FormatCSV, opt, CheckOptions{Each: func(r *Row) error { got = *r; return nil }})
	if !report.Good() || got.Job.DebtorAccount.Reveal() != "cust-1" || got.Job.Amount.String() != "49.00 GBP" || got.Job.Beneficiary.Name.Reveal() != "A N Example" ||
		got.Job.Beneficiary.IBAN.Reveal() != "GB33BUKB20201555555555" || got.Job.Reference != "" {
		t.Errorf("read %+v; %s", got, codes(report))
	}
	if plainly := mustCheck(t, "debtor_account,amount,currency,name,iban\ncust-1,49.00,GBP,A N Example,GB33BUKB20201555555555\n", FormatCSV, plain(),
		CheckOptions{}); plainly.ContentDigest != report.ContentDigest {
		t.Error("the words of a header are no content")
	}
	bad := mustCheck(t, "From,Sum,Ccy,name,a=b,Team,Shift\n"+strings.Replace(row, "49.00", "49", 1), FormatCSV, opt, CheckOptions{})
	if len(bad.Faults) != 1 || bad.Faults[0].Column != "Sum" || bad.Faults[0].Cell != 2 {
		t.Errorf("a fault is not in the words of the file: %+v", bad.Faults)
	}
}

func TestTemplatesThatCannotBe(t *testing.T) {
	whole := []string{"debtor_account", "amount", "currency", "name", "iban"}
	for want, items := range map[string][]string{
		`"colour" is neither a column`:     append([]string{"colour"}, whole...),
		`"Farbe=colour" is neither`:        append([]string{"Farbe=colour"}, whole...),
		`"=reference" is neither`:          append([]string{"=reference"}, whole...),
		`"name" stands twice`:              append([]string{"name=-"}, whole...),
		`two cells are amount`:             append([]string{"Sum=amount"}, whole...),
		`no column is debtor_account`:      whole[1:],
		`no column names an account`:       append([]string{"account_number"}, whole[:4]...),
		`"a\"b=reference" is neither`:      append([]string{`a"b=reference`}, whole...),
		`no column is debtor_account, and`: {},
	} {
		opt := plain()
		opt.Dialect.Columns = items
		if _, err := Open(strings.NewReader(""), FormatCSV, opt); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(want, `\"`, `\\"`)) && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", items, err, want)
		}
	}
	opt := plain()
	opt.Dialect.Columns = append([]string{"Team=-", "Group=-", "Text=reference"}, whole...)
	if _, err := Open(strings.NewReader(""), FormatCSV, opt); err != nil {
		t.Error(err)
	}
}

package file

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/paidonce/paidonce/ledger/money"
)

// painRow is the document of one row, with replacements, pair by pair.
func painRow(t *testing.T, format Format, pairs ...string) string {
	t.Helper()
	document := string(painDocument(format, 1))
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(document, pairs[i]) {
			t.Fatalf("%q is not in the document", pairs[i])
		}
		document = strings.Replace(document, pairs[i], pairs[i+1], 1)
	}
	return document
}

const (
	inAmount = `<InstdAmt Ccy="EUR">100.00</InstdAmt>`
	inName   = `<Nm>A N Example 0</Nm>`
	inIBAN   = `<IBAN>FR1420041010050500013M02606</IBAN>`
	inUstrd  = `<Ustrd>Withdrawal 0</Ustrd>`
	inId     = `<EndToEndId>E2E-0</EndToEndId>`
)

func TestPainIsReadLiterally(t *testing.T) {
	for name, c := range map[string]struct {
		pairs []string
		want  func(*Row) string
		value string
	}{
		"H5 an ampersand and angles":  {[]string{inName, `<Nm>A &amp; B &lt;C&gt;</Nm>`}, nameOf, "A & B <C>"},
		"a character by its number":   {[]string{inName, `<Nm>A&#x4e;&#78;</Nm>`}, nameOf, "ANN"},
		"CDATA":                       {[]string{inName, `<Nm><![CDATA[A & B]]></Nm>`}, nameOf, "A & B"},
		"a comment between elements":  {[]string{inName, `<!-- a name -->` + inName}, nameOf, "A N Example 0"},
		"a prefix":                    {[]string{`<Document xmlns=`, `<p:Document xmlns:p=`}, nil, ""},
		"fewer digits":                {[]string{inAmount, `<InstdAmt Ccy="EUR">100</InstdAmt>`}, amountText, "100.00 EUR"},
		"one digit":                   {[]string{inAmount, `<InstdAmt Ccy="EUR">100.0</InstdAmt>`}, amountText, "100.00 EUR"},
		"white space around a number": {[]string{inAmount, "<InstdAmt Ccy=\"EUR\">\n 100.00\t</InstdAmt>"}, amountText, "100.00 EUR"},
		"structured remittance":       {[]string{inUstrd, `<Strd><CdtrRefInf><Ref>RF18539007547034</Ref></CdtrRefInf></Strd>`}, referenceOf, "RF18539007547034"},
		"a structured reference":      {[]string{inUstrd, `<Strd><CdtrRefInf><Ref>539007547034</Ref></CdtrRefInf></Strd>`}, referenceOf, "539007547034"},
		"no remittance":               {[]string{`<RmtInf>` + inUstrd + `</RmtInf>`, ``}, referenceOf, ""},
		"the name of the row":         {nil, func(r *Row) string { return r.RowRef + r.EndToEndID }, "E2E-0E2E-0"},
		"the payer":                   {nil, func(r *Row) string { return r.Job.DebtorAccount.Reveal() }, "DE89370400440532013000"},
		"the bank":                    {nil, func(r *Row) string { return r.Job.Beneficiary.BIC.Reveal() }, "BNPAFRPPXXX"},
		"the day":                     {nil, beginOf, "2026-12-24T00:00:00"},
		"as soon as possible":         {[]string{`2026-12-24<`, `1999-01-01<`}, beginOf, "0001-01-01T00:00:00"},
		"a person born long ago": {[]string{inName, inName + `<Id><PrvtId><DtAndPlcOfBirth><BirthDt>1949-02-28</BirthDt><CityOfBirth>Ulm</CityOfBirth>` +
			`<CtryOfBirth>DE</CtryOfBirth></DtAndPlcOfBirth></PrvtId></Id>`}, nameOf, "A N Example 0"},
		"a day with an offset": {[]string{`2026-12-24<`, `2026-12-24+01:00<`}, beginOf, "2026-12-23T23:00:00"},
	} {
		for _, format := range []Format{FormatPain00103, FormatPain00109} {
			document := painRow(t, format, c.pairs...)
			if name == "a prefix" {
				document = strings.NewReplacer("</", "</p:", "<p:", "<p:", "<?", "<?", "<", "<p:").Replace(document)
			}
			got := ""
			report := mustCheck(t, document, format, plain(), CheckOptions{Each: func(r *Row) error {
				if c.want != nil {
					got = c.want(r)
				}
				return nil
			}})
			if !report.Good() || got != c.value {
				t.Errorf("%s in %s: %q, want %q; %s", name, format, got, c.value, codes(report))
			}
		}
	}
}

// TestPain_ADayLongAgoIsAMistake, and one that is no day is no value.
func TestPain_ADayLongAgoIsAMistake(t *testing.T) {
	for day, want := range map[string]string{"0026-12-24": "time_range", "1999-01-02": "time_range", "2026-02-29": "time_form", "24.12.2026": "time_form"} {
		for _, format := range []Format{FormatPain00103, FormatPain00109} {
			report := mustCheck(t, painRow(t, format, `2026-12-24<`, day+`<`), format, plain(), CheckOptions{})
			if report.FaultsByCode[want] != 1 || report.FaultCount != 1 || !strings.HasPrefix(report.Faults[0].Column, "PmtInf/ReqdExctnDt") {
				t.Errorf("%s in %s: %s, want %s", day, format, codes(report), want)
			}
		}
	}
}

func nameOf(r *Row) string      { return r.Job.Beneficiary.Name.Reveal() }
func amountText(r *Row) string  { return r.Job.Amount.String() }
func referenceOf(r *Row) string { return r.Job.Reference.Reveal() }
func beginOf(r *Row) string     { return r.Job.NotBefore.Format("2006-01-02T15:04:05") }

func TestPainIsRefused(t *testing.T) {
	deep := strings.Repeat("<a>", 120)
	for name, c := range map[string]struct {
		pairs      []string
		code, path string
	}{
		"H7 a sign":                      {[]string{inAmount, `<InstdAmt Ccy="EUR">+100.00</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 an exponent":                 {[]string{inAmount, `<InstdAmt Ccy="EUR">1e2</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 no digit before":             {[]string{inAmount, `<InstdAmt Ccy="EUR">.50</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 no digit behind":             {[]string{inAmount, `<InstdAmt Ccy="EUR">100.</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 a comma":                     {[]string{inAmount, `<InstdAmt Ccy="EUR">100,00</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 a space inside":              {[]string{inAmount, `<InstdAmt Ccy="EUR">1 00</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"H7 digits of another script":    {[]string{inAmount, `<InstdAmt Ccy="EUR">１００</InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"I3 excess digits":               {[]string{inAmount, `<InstdAmt Ccy="EUR">100.001</InstdAmt>`}, "amount_digits", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"I3 excess zeros":                {[]string{inAmount, `<InstdAmt Ccy="JPY">100.0</InstdAmt>`}, "amount_digits", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"I5 nothing":                     {[]string{inAmount, `<InstdAmt Ccy="EUR"></InstdAmt>`}, "amount_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"no currency":                    {[]string{inAmount, `<InstdAmt>100.00</InstdAmt>`}, "currency_form", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"a currency twice":               {[]string{inAmount, `<InstdAmt Ccy="EUR" Ccy="USD">100.00</InstdAmt>`}, "attribute", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"two amounts":                    {[]string{inAmount, inAmount + inAmount}, "element_order", "PmtInf/CdtTrfTxInf/Amt/InstdAmt"},
		"no amount":                      {[]string{inAmount, ``}, "element_missing", "PmtInf/CdtTrfTxInf/Amt"},
		"no name of the row":             {[]string{inId, ``}, "element_missing", "PmtInf/CdtTrfTxInf/PmtId/EndToEndId"},
		"a name of 36":                   {[]string{inId, `<EndToEndId>` + strings.Repeat("x", 36) + `</EndToEndId>`}, "value_form", "PmtInf/CdtTrfTxInf/PmtId/EndToEndId"},
		"a name of 141":                  {[]string{inName, `<Nm>` + strings.Repeat("x", 141) + `</Nm>`}, "value_form", "PmtInf/CdtTrfTxInf/Cdtr/Nm"},
		"no name":                        {[]string{inName, ``}, "missing", "PmtInf/CdtTrfTxInf/Cdtr/Nm"},
		"no account":                     {[]string{`<CdtrAcct><Id>` + inIBAN + `</Id></CdtrAcct>`, ``}, "missing", "PmtInf/CdtTrfTxInf/CdtrAcct"},
		"spaces around a name":           {[]string{inName, "<Nm>\n A N Example\n</Nm>"}, "control_character", "PmtInf/CdtTrfTxInf/Cdtr/Nm"},
		"spaces in an IBAN":              {[]string{inIBAN, `<IBAN>FR14 2004 1010 0505 0001 3M02 606</IBAN>`}, "iban_form", "PmtInf/CdtTrfTxInf/CdtrAcct/Id/IBAN"},
		"a method of two kinds":          {[]string{`<PmtMtd>TRF</PmtMtd>`, `<PmtMtd>TRA</PmtMtd>`}, "not_honoured", "PmtInf/PmtMtd"},
		"a method nobody knows":          {[]string{`<PmtMtd>TRF</PmtMtd>`, `<PmtMtd>XXX</PmtMtd>`}, "value_form", "PmtInf/PmtMtd"},
		"charges to the beneficiary":     {[]string{`<ChrgBr>SLEV</ChrgBr>`, `<ChrgBr>CRED</ChrgBr>`}, "not_honoured", "PmtInf/ChrgBr"},
		"a day that is none":             {[]string{`2026-12-24`, `2026-02-30`}, "time_form", ""},
		"text between elements":          {[]string{inName, `x` + inName}, "text_unexpected", "PmtInf/CdtTrfTxInf/Cdtr"},
		"an element inside of text":      {[]string{`E2E-0`, `<b>E2E-0</b>`}, "element_unknown", "PmtInf/CdtTrfTxInf/PmtId/EndToEndId"},
		"an instruction inside":          {[]string{inName, `<?pay twice?>` + inName}, "xml_instruction", ""},
		"a declaration behind the begin": {[]string{`<?xml version="1.0" encoding="UTF-8"?>`, "\n" + `<?xml version="1.0" encoding="UTF-8"?>`}, "xml_instruction", ""},
		"two declarations":               {[]string{`<?xml`, `<?xml version="1.0"?><?xml`}, "xml_instruction", ""},
		"a NUL by its number":            {[]string{inName, `<Nm>A&#0;</Nm>`}, "xml_syntax", ""},
		"a value without end":            {[]string{inName, `<Nm>` + strings.Repeat("x", 70<<10) + `</Nm>`}, "too_large", ""},
		"an end without a begin":         {[]string{inName, inName + `</Nm>`}, "xml_syntax", ""},
		"elements without end":           {[]string{inUstrd, `<Strd><Invcr>` + deep + `</Invcr></Strd>`}, "xml_depth", ""},
		"text behind the document":       {[]string{`</Document>`, `</Document>x`}, "xml_syntax", ""},
		"a second document":              {[]string{`</Document>`, `</Document><Document/>`}, "trailing_data", ""},
		"two references":                 {[]string{inUstrd, inUstrd + `<Strd><CdtrRefInf><Ref>1</Ref></CdtrRefInf></Strd>`}, "remittance_many", "PmtInf/CdtTrfTxInf/RmtInf"},
		"no reference":                   {[]string{inUstrd, `<Strd><CdtrRefInf></CdtrRefInf></Strd>`}, "missing", "PmtInf/CdtTrfTxInf/RmtInf/Strd/CdtrRefInf/Ref"},
		"an agent at a branch":           {[]string{`XXX</BIC></FinInstnId></CdtrAgt>`, `XXX</BIC></FinInstnId><BrnchId><Id>1</Id></BrnchId></CdtrAgt>`}, "not_honoured", "PmtInf/CdtTrfTxInf/CdtrAgt/BrnchId"},
		"another bank by clearing":       {[]string{`<BIC>BNPAFRPPXXX</BIC>`, `<ClrSysMmbId><ClrSysId><Cd>GBDSC</Cd></ClrSysId><MmbId>202015</MmbId></ClrSysMmbId>`}, "beneficiary_form", "PmtInf/CdtTrfTxInf/CdtrAgt/FinInstnId/ClrSysMmbId"},
		"a clearing without a name":      {[]string{`<BIC>BNPAFRPPXXX</BIC>`, `<ClrSysMmbId><MmbId>202015</MmbId></ClrSysMmbId>`}, "missing", "PmtInf/CdtTrfTxInf/CdtrAgt/FinInstnId/ClrSysMmbId/ClrSysId"},
		"an account in another currency": {[]string{inIBAN + `</Id>`, inIBAN + `</Id><Ccy>USD</Ccy>`}, "not_honoured", "PmtInf/CdtTrfTxInf/CdtrAcct/Ccy"},
	} {
		report := mustCheck(t, painRow(t, FormatPain00103, c.pairs...), FormatPain00103, plain(), CheckOptions{})
		if report.Good() {
			t.Errorf("%s: taken", name)
			continue
		}
		if f := report.Faults[0]; f.Code != c.code || c.path != "" && f.Column != c.path {
			t.Errorf("%s: %s at %s, want %s at %s", name, f.Code, f.Column, c.code, c.path)
		}
	}
}

// TestPainDropsOnlyWhatItWasTold: an element that can be dropped is refused without that word, and read with it.
func TestPainDropsOnlyWhatItWasTold(t *testing.T) {
	head := `<PmtId>` + inId + `</PmtId>`
	for element, pairs := range map[string][]string{
		"CtgyPurp":    {head, head + `<PmtTpInf><CtgyPurp><Cd>SALA</Cd></CtgyPurp></PmtTpInf>`},
		"InstrPrty":   {head, head + `<PmtTpInf><InstrPrty>HIGH</InstrPrty></PmtTpInf>`},
		"SvcLvl":      {head, head + `<PmtTpInf><SvcLvl><Prtry>FAST</Prtry></SvcLvl></PmtTpInf>`},
		"UETR":        {inId, inId + `<UETR>8a562c67-ca16-48ba-b074-65581be6f001</UETR>`},
		"Purp":        {`<RmtInf>`, `<Purp><Cd>SALA</Cd></Purp><RmtInf>`},
		"RltdRmtInf":  {`<RmtInf>`, `<RltdRmtInf><RmtId>1</RmtId></RltdRmtInf><RmtInf>`},
		"UltmtCdtr":   {`<RmtInf>`, `<UltmtCdtr><Nm>Another</Nm></UltmtCdtr><RmtInf>`},
		"UltmtDbtr":   {`<ChrgBr>`, `<UltmtDbtr><Nm>Another</Nm></UltmtDbtr><ChrgBr>`},
		"SplmtryData": {`</RmtInf>`, `</RmtInf><SplmtryData><Envlp>x</Envlp></SplmtryData>`},
	} {
		document := painRow(t, FormatPain00109, pairs...)
		if report := mustCheck(t, document, FormatPain00109, plain(), CheckOptions{}); !strings.HasSuffix(codes(report), ":not_honoured") {
			t.Errorf("%s: %q, want not_honoured", element, codes(report))
		}
		opt := plain()
		opt.Ignore = []string{element}
		if report := mustCheck(t, document, FormatPain00109, opt, CheckOptions{}); !report.Good() {
			t.Errorf("%s, dropped: %s", element, codes(report))
		}
		opt.Ignore = []string{"Purp", "UETR"}
		if element != "Purp" && element != "UETR" {
			if report := mustCheck(t, document, FormatPain00109, opt, CheckOptions{}); report.Good() {
				t.Errorf("%s: dropped though others were named", element)
			}
		}
	}
	if len(Droppable()) != 9 {
		t.Errorf("%d elements may be dropped, and 9 are tested", len(Droppable()))
	}
}

func TestI6_ControlSums(t *testing.T) {
	for text, want := range map[string][3]uint64{
		"0":                    {0, 0, 1},
		"1300.55":              {0, 130055000, 1},
		"1300.55000000":        {0, 130055000, 1},
		"1300.550001":          {0, 0, 0},
		"999999999999999999":   {5421, 200376420520689664 - 100000, 1}, // 10^23 - 10^5
		"0.00001":              {0, 1, 1},
		"0.000001":             {0, 0, 0},
		"9999999999999.99999":  {0, 999999999999999999, 1},
		"99999999999999999999": {0, 0, 0}, // which the schema forbids
	} {
		high, low, ok := controlSum(text)
		if ok != (want[2] == 1) || ok && (high != want[0] || low != want[1]) {
			t.Errorf("%s: %d %d %v", text, high, low, ok)
		}
	}
	for name, c := range map[string]struct{ sum, want string }{
		"right": {"200.00", ""}, "as one number over currencies": {"200", ""}, "too much": {"200.01", "control_sum"}, "by a hundred": {"20000", "control_sum"},
	} {
		document := strings.Replace(string(painDocument(FormatPain00103, 2)), "<CtrlSum>200.00</CtrlSum>", "<CtrlSum>"+c.sum+"</CtrlSum>", 1)
		document = strings.Replace(document, `Ccy="EUR">100.00`, `Ccy="JPY">100`, 1)
		if report := mustCheck(t, document, FormatPain00103, plain(), CheckOptions{}); !strings.HasSuffix(codes(report), c.want) || report.Good() != (c.want == "") {
			t.Errorf("%s: %s", name, codes(report))
		}
	}
}

func TestCharsetOfEndToEndIDs(t *testing.T) {
	opt := plain()
	opt.Charset = CharsetSEPA
	for id, good := range map[string]bool{"E2E-0": true, "a/b": true, "/a": false, "a/": false, "a//b": false, "E_0": false, "Zoë": false} {
		report := mustCheck(t, painRow(t, FormatPain00109, inId, "<EndToEndId>"+id+"</EndToEndId>"), FormatPain00109, opt, CheckOptions{})
		if report.Good() != good || !good && report.Faults[0].Code != "charset" {
			t.Errorf("%q: %s", id, codes(report))
		}
	}
}

// TestEndToEndIDs_MayRepeat: SALARY in every row is how payrolls are written. What pays the same account the same amount is found all the same; and
// a row_ref of NDJSON, which its author has chosen, stays one row's own.
func TestEndToEndIDs_MayRepeat(t *testing.T) {
	for _, format := range []Format{FormatPain00103, FormatPain00109} {
		document := strings.NewReplacer("E2E-0", "SALARY", "E2E-1", "SALARY", "E2E-2", "SALARY").Replace(string(painDocument(format, 3)))
		report := mustCheck(t, document, format, plain(), CheckOptions{})
		if !report.Good() || report.Bad != 0 || report.DuplicateSets != 1 || report.DuplicateRows != 2 {
			t.Errorf("three equal payments: %s, %d duplicates", codes(report), report.DuplicateRows)
		}
		others := strings.Replace(strings.Replace(document, ">100.00<", ">101.00<", 1), ">100.00<", ">99.00<", 1)
		if report := mustCheck(t, others, format, plain(), CheckOptions{}); !report.Good() || report.DuplicateSets != 0 || report.Rows != 3 {
			t.Errorf("three payments: %s, %d duplicates", codes(report), report.DuplicateSets)
		}
	}
	row := `{"row_ref":"SALARY","debtor_account":"cust-1","amount":"%d.00","currency":"GBP","beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"}}` + "\n"
	if report := mustCheck(t, fmt.Sprintf(row+row, 1, 2), FormatNDJSON, plain(), CheckOptions{}); report.FaultsByCode[CodeRowRefTwice] != 1 || report.Bad != 1 {
		t.Errorf("a name twice in NDJSON: %s", codes(report))
	}
}

// TestI6_SumsBeyond64Bits are carried on.
func TestI6_SumsBeyond64Bits(t *testing.T) {
	var sum totalsOf
	want := new(big.Int)
	for i := range 50 {
		minor := int64(math.MaxInt64 - i)
		sum.add(money.Amount{Minor: minor, Currency: "EUR"})
		want.Add(want, new(big.Int).Mul(big.NewInt(minor), big.NewInt(1000)))
	}
	got := new(big.Int).Add(new(big.Int).Lsh(new(big.Int).SetUint64(sum.high), 64), new(big.Int).SetUint64(sum.low))
	if got.Cmp(want) != 0 || sum.rows != 50 || sum.unreadable != 0 {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestGrammar: the order of the official schemas, as independent constants, and no type that nobody checks.
func TestGrammar(t *testing.T) {
	const row03 = "PmtId PmtTpInf Amt XchgRateInf ChrgBr ChqInstr UltmtDbtr IntrmyAgt1 IntrmyAgt1Acct IntrmyAgt2 IntrmyAgt2Acct IntrmyAgt3 IntrmyAgt3Acct " +
		"CdtrAgt CdtrAgtAcct Cdtr CdtrAcct UltmtCdtr InstrForCdtrAgt InstrForDbtrAgt Purp RgltryRptg Tax RltdRmtInf RmtInf"
	const payment03 = "PmtInfId PmtMtd BtchBookg NbOfTxs CtrlSum PmtTpInf ReqdExctnDt PoolgAdjstmntDt Dbtr DbtrAcct DbtrAgt DbtrAgtAcct UltmtDbtr ChrgBr " +
		"ChrgsAcct ChrgsAcctAgt CdtTrfTxInf"
	payment09 := strings.Replace(payment03, "DbtrAgtAcct", "DbtrAgtAcct InstrForDbtrAgt", 1)
	for grammar, want := range map[string][2]string{grammar03: {payment03, row03}, grammar09: {payment09, row03 + " SplmtryData"}} {
		root := compile(grammar, nil)
		payment := child(t, child(t, root, "CstmrCdtTrfInitn"), "PmtInf")
		row := child(t, payment, "CdtTrfTxInf")
		if names(payment) != want[0] || names(row) != want[1] {
			t.Errorf("PmtInf: %s\nCdtTrfTxInf: %s", names(payment), names(row))
		}
		sinks := map[sink]int{}
		walk(root, func(n *node) {
			sinks[n.sink]++
			if n.value != nil {
				_ = n.value.check("x") // panics for a type that nobody checks
			} else if len(n.children) == 0 && !n.refused {
				t.Errorf("%s has neither value nor children", n.path)
			}
		})
		for s := sinkHeader; s <= sinkReference; s++ {
			if n := sinks[s]; n != 1 && (s != sinkTime || grammar == grammar09) && (s != sinkDate || n != 2) {
				t.Errorf("%d elements go to sink %d", n, s)
			}
		}
	}
}

func child(t *testing.T, n *node, name string) *node {
	t.Helper()
	for _, c := range n.children {
		if c.name == name {
			return c
		}
	}
	t.Fatalf("%s has no %s", n.path, name)
	return nil
}

func names(n *node) string {
	var list []string
	for _, c := range n.children {
		list = append(list, c.name)
	}
	return strings.Join(list, " ")
}

func walk(n *node, visit func(*node)) {
	visit(n)
	for _, c := range n.children {
		walk(c, visit)
	}
}

package file

import (
	"bytes"
	"fmt"
	"testing"
)

// painDocument is a good document of so many rows.
func painDocument(format Format, rows int) []byte {
	bic, date := "BIC", "<ReqdExctnDt>2026-12-24</ReqdExctnDt>"
	if format == FormatPain00109 {
		bic, date = "BICFI", "<ReqdExctnDt><Dt>2026-12-24</Dt></ReqdExctnDt>"
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>
<Document xmlns="urn:iso:std:iso:20022:tech:xsd:%s"><CstmrCdtTrfInitn>
<GrpHdr><MsgId>M1</MsgId><CreDtTm>2026-11-30T09:00:00</CreDtTm><NbOfTxs>%d</NbOfTxs><CtrlSum>%d.00</CtrlSum><InitgPty><Nm>Example Ltd</Nm></InitgPty></GrpHdr>
<PmtInf><PmtInfId>P1</PmtInfId><PmtMtd>TRF</PmtMtd><NbOfTxs>%d</NbOfTxs>%s<Dbtr><Nm>Example Ltd</Nm></Dbtr>
<DbtrAcct><Id><IBAN>DE89370400440532013000</IBAN></Id></DbtrAcct><DbtrAgt><FinInstnId><%s>COBADEFFXXX</%s></FinInstnId></DbtrAgt><ChrgBr>SLEV</ChrgBr>
`, format, rows, 100*rows, rows, date, bic, bic)
	for i := range rows {
		fmt.Fprintf(&b, `<CdtTrfTxInf><PmtId><EndToEndId>E2E-%d</EndToEndId></PmtId><Amt><InstdAmt Ccy="EUR">100.00</InstdAmt></Amt>
<CdtrAgt><FinInstnId><%s>BNPAFRPPXXX</%s></FinInstnId></CdtrAgt><Cdtr><Nm>A N Example %d</Nm></Cdtr><CdtrAcct><Id><IBAN>FR1420041010050500013M02606</IBAN></Id></CdtrAcct>
<RmtInf><Ustrd>Withdrawal %d</Ustrd></RmtInf></CdtTrfTxInf>
`, i, bic, bic, i, i)
	}
	b.WriteString("</PmtInf></CstmrCdtTrfInitn></Document>\n")
	return b.Bytes()
}

func TestCheckGoodPain(t *testing.T) {
	for _, format := range []Format{FormatPain00103, FormatPain00109} {
		report := mustCheck(t, string(painDocument(format, 3)), format, plain(), CheckOptions{})
		if !report.Good() || report.Rows != 3 || report.Sums[0].String() != "300.00 EUR" {
			t.Fatalf("%s: %+v", format, report)
		}
	}
}

func TestJ1_ByteOrderMarkOfPain(t *testing.T) {
	document := string(painDocument(FormatPain00103, 1))
	if report := mustCheck(t, "\ufeff"+document, FormatPain00103, plain(), CheckOptions{}); !report.Good() {
		t.Fatalf("one mark: %+v", report)
	}
	report := mustCheck(t, "\ufeff\ufeff"+document, FormatPain00103, plain(), CheckOptions{})
	if report.Good() || report.Faults[0].Code != "bom" {
		t.Fatalf("two marks: %+v", report)
	}
}

package file

import (
	"errors"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/paidonce/paidonce/ledger/money"
	"github.com/paidonce/paidonce/worker/job"
)

// sink is where the value of an element goes, or what begins and ends with it.
type sink uint8

const (
	sinkNone sink = iota
	sinkHeader
	sinkHeaderCount
	sinkHeaderSum
	sinkDocument
	sinkPayment
	sinkPaymentCount
	sinkPaymentSum
	sinkDate
	sinkTime
	sinkPayerIBAN
	sinkPayerOther
	sinkRow
	sinkEndToEnd
	sinkAmount
	sinkBIC
	sinkClearing
	sinkMember
	sinkName
	sinkIBAN
	sinkOther
	sinkAccountCurrency
	sinkUnstructured
	sinkStructured
	sinkReference
)

func sinkOf(path string) sink {
	switch path {
	case "CstmrCdtTrfInitn":
		return sinkDocument
	case "GrpHdr":
		return sinkHeader
	case "GrpHdr/NbOfTxs":
		return sinkHeaderCount
	case "GrpHdr/CtrlSum":
		return sinkHeaderSum
	case "PmtInf":
		return sinkPayment
	case "PmtInf/NbOfTxs":
		return sinkPaymentCount
	case "PmtInf/CtrlSum":
		return sinkPaymentSum
	case "PmtInf/ReqdExctnDt", "PmtInf/ReqdExctnDt/Dt":
		return sinkDate
	case "PmtInf/ReqdExctnDt/DtTm":
		return sinkTime
	case "PmtInf/DbtrAcct/Id/IBAN":
		return sinkPayerIBAN
	case "PmtInf/DbtrAcct/Id/Othr/Id":
		return sinkPayerOther
	}
	path, inRow := strings.CutPrefix(path, "PmtInf/CdtTrfTxInf")
	if !inRow {
		return sinkNone
	}
	switch path {
	case "":
		return sinkRow
	case "/PmtId/EndToEndId":
		return sinkEndToEnd
	case "/Amt/InstdAmt":
		return sinkAmount
	case "/CdtrAgt/FinInstnId/BIC", "/CdtrAgt/FinInstnId/BICFI":
		return sinkBIC
	case "/CdtrAgt/FinInstnId/ClrSysMmbId/ClrSysId/Cd":
		return sinkClearing
	case "/CdtrAgt/FinInstnId/ClrSysMmbId/MmbId":
		return sinkMember
	case "/Cdtr/Nm":
		return sinkName
	case "/CdtrAcct/Id/IBAN":
		return sinkIBAN
	case "/CdtrAcct/Id/Othr/Id":
		return sinkOther
	case "/CdtrAcct/Ccy":
		return sinkAccountCurrency
	case "/RmtInf/Ustrd":
		return sinkUnstructured
	case "/RmtInf/Strd":
		return sinkStructured
	case "/RmtInf/Strd/CdtrRefInf/Ref":
		return sinkReference
	}
	return sinkNone
}

// payer is what all rows of a PmtInf share.
type payer struct{ account, notBefore string }

// transfer is one CdtTrfTxInf while it is read.
type transfer struct {
	line                               int
	endToEnd, amount, currency         string
	bic, clearing, member              string
	name, iban, other, accountCurrency string
	reference                          string
	remittances                        int // Ustrd and Strd
	structured                         bool
	fault                              *Fault
}

// begin is called when an element begins.
func (s *painSource) begin(to sink) {
	switch to {
	case sinkPayment:
		s.payment, s.payer = totalsOf{}, payer{}
	case sinkRow:
		s.row, s.inRow = transfer{line: s.tokens.line()}, true
	case sinkStructured:
		s.row.remittances++
		s.row.structured = true
	}
}

// soonest is the date by which programs ask for the next day that is possible.
const soonest = "1999-01-01"

// setBegin takes the day of a payment. One long past is a mistake, unless it is the one that means none.
func (s *painSource) setBegin(at time.Time, asSoonAsPossible bool) {
	switch {
	case asSoonAsPossible:
		s.payer.notBefore = ""
	case at.UTC().Year() < 2000:
		s.found(s.faultAt(s.open(), job.CodeTimeRange, "lies long ago", "write the day of the payment, or "+soonest+" for as soon as possible"))
	default:
		s.payer.notBefore = dayOrTime(at)
	}
}

// set puts a value where it belongs.
func (s *painSource) set(to sink, text string) {
	r := &s.row
	switch to {
	case sinkHeaderCount:
		s.header.count = text
	case sinkHeaderSum:
		s.header.control = text
	case sinkPaymentCount:
		s.payment.count = text
	case sinkPaymentSum:
		s.payment.control = text
	case sinkDate:
		day, _ := xmlDate(text, s.opt.Location)
		s.setBegin(day, strings.HasPrefix(text, soonest))
	case sinkTime:
		at, _ := xmlTime(text, s.opt.Location)
		s.setBegin(at, strings.HasPrefix(text, soonest))
	case sinkPayerIBAN, sinkPayerOther:
		s.payer.account = text
	case sinkEndToEnd:
		r.endToEnd = text
	case sinkAmount:
		r.amount, r.currency = text, s.ccy
	case sinkBIC:
		r.bic = text
	case sinkClearing:
		r.clearing = text
	case sinkMember:
		r.member = text
	case sinkName:
		r.name = text
	case sinkIBAN:
		r.iban = text
	case sinkOther:
		r.other = text
	case sinkAccountCurrency:
		r.accountCurrency = text
	case sinkUnstructured:
		r.remittances++
		r.reference = text
	case sinkReference:
		r.reference = text
	}
}

// close is called when an element has ended.
func (s *painSource) close(of sink) (row Row, isRow bool, err error) {
	switch of {
	case sinkRow:
		s.inRow = false
		row, fault := s.makeRow()
		if fault != nil {
			fault.Row = 1
			return Row{}, false, fault
		}
		return row, true, nil
	case sinkPayment:
		s.compare("PmtInf", &s.payment)
	case sinkDocument:
		s.compare("GrpHdr", &s.header)
	}
	return Row{}, false, nil
}

// makeRow turns a CdtTrfTxInf into a row.
func (s *painSource) makeRow() (Row, *Fault) {
	r := &s.row
	amount, amountFault := scaled(r.amount, r.currency)
	s.header.add(amount)
	s.payment.add(amount)
	fault := func(path, code, message, hint string) (Row, *Fault) {
		return Row{}, &Fault{Line: r.line, Column: "PmtInf/CdtTrfTxInf" + path, Code: code, Message: message, Hint: hint}
	}
	british := len(r.iban) == 22 && r.iban[:2] == "GB" && r.iban[8:14] == r.member
	switch {
	case r.fault != nil:
		return Row{}, r.fault
	case amountFault != "":
		return fault("/Amt/InstdAmt", amountFault, amountMessage(amountFault), hintOf(amountFault, ""))
	case r.name == "":
		return fault("/Cdtr/Nm", "missing", "the beneficiary has no name", "fill it in")
	case r.iban == "" && r.other == "":
		return fault("/CdtrAcct", "missing", "the beneficiary has no account", "fill it in")
	case r.member != "" && r.clearing == "":
		return fault("/CdtrAgt/FinInstnId/ClrSysMmbId/ClrSysId", "missing", "the member of a clearing without the clearing", "write GBDSC or USABA")
	case r.member != "" && r.iban != "" && !british:
		return fault("/CdtrAgt/FinInstnId/ClrSysMmbId", job.CodeBeneficiaryForm, "stands beside an IBAN that names another bank, or none that can be compared",
			"leave one of the two out")
	case r.accountCurrency != "" && r.accountCurrency != r.currency:
		return fault("/CdtrAcct/Ccy", "not_honoured", "is another currency than that of the amount", "leave it out")
	case r.remittances > 1:
		return fault("/RmtInf", "remittance_many", "has more than one text or reference for the beneficiary", "give one Ustrd or one Strd")
	case r.structured && r.reference == "":
		return fault("/RmtInf/Strd/CdtrRefInf/Ref", "missing", "structured remittance without a reference", "give the reference, or leave Strd out")
	case r.structured && strings.HasPrefix(r.reference, "RF") && !creditorReference(r.reference):
		return fault("/RmtInf/Strd/CdtrRefInf/Ref", "creditor_reference", "fails the check digits of ISO 11649", "ask the beneficiary again")
	}
	return s.jobOf(amount)
}

// jobOf checks the values of a row as those of every job.
func (s *painSource) jobOf(amount money.Amount) (Row, *Fault) {
	r := &s.row
	texts := job.Texts{DebtorAccount: s.payer.account, Amount: amount.Decimal(), Currency: r.currency, Name: r.name, IBAN: r.iban, BIC: r.bic,
		Reference: r.reference, NotBefore: s.payer.notBefore}
	if r.iban == "" {
		texts.AccountNumber = r.other
		switch r.clearing {
		case "GBDSC":
			texts.SortCode = r.member
		case "USABA":
			texts.RoutingNumber = r.member
		}
	}
	route := s.opt.Route
	if route == "" {
		return Row{}, &Fault{Line: r.line, Column: "PmtInf/CdtTrfTxInf", Code: "missing", Message: "the run names no route", Hint: "name the route of the run"}
	}
	j, err := job.FromTexts(s.opt.Source, route, uuid.Nil, &texts)
	if err != nil {
		var fault *job.Fault
		if !errors.As(err, &fault) {
			panic("file: FromTexts gives nothing but faults")
		}
		return Row{}, &Fault{Line: r.line, Column: painPath(fault.Path), Code: fault.Code, Message: fault.Detail, Hint: hintOf(fault.Code, fault.Path)}
	}
	return Row{Line: r.line, Job: j, RowRef: r.endToEnd, EndToEndID: r.endToEnd}, nil
}

// painPath says where in the document stands what a job calls so.
func painPath(path string) string {
	const row = "PmtInf/CdtTrfTxInf"
	switch path {
	case "/debtor_account":
		return "PmtInf/DbtrAcct"
	case "/amount", "/currency":
		return row + "/Amt/InstdAmt"
	case "/beneficiary/name":
		return row + "/Cdtr/Nm"
	case "/beneficiary/iban":
		return row + "/CdtrAcct/Id/IBAN"
	case "/beneficiary/account_number":
		return row + "/CdtrAcct/Id/Othr/Id"
	case "/beneficiary/sort_code", "/beneficiary/routing_number":
		return row + "/CdtrAgt/FinInstnId/ClrSysMmbId/MmbId"
	case "/beneficiary/bic", "/beneficiary":
		return row + "/CdtrAgt"
	case "/reference":
		return row + "/RmtInf"
	case "/not_before":
		return "PmtInf/ReqdExctnDt"
	default:
		return row
	}
}

// scaled reads an amount that may have fewer digits than its currency. The code of a fault, or "".
func scaled(text, currency string) (money.Amount, string) {
	digits, ok := money.Digits(currency)
	if !ok {
		return money.Amount{}, job.CodeCurrencyUnknown
	}
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > digits {
		return money.Amount{}, job.CodeAmountDigits
	}
	if digits > 0 {
		whole += "." + fraction + "00000"[:digits-len(fraction)]
	}
	amount, err := money.Parse(whole, currency)
	switch {
	case err == nil:
		return amount, ""
	case errors.Is(err, money.ErrZero):
		return amount, job.CodeAmountZero
	case errors.Is(err, money.ErrOverflow):
		return amount, job.CodeAmountRange
	default:
		return amount, job.CodeAmountForm
	}
}

func amountMessage(code string) string {
	switch code {
	case job.CodeCurrencyUnknown:
		return "must be an ISO 4217 currency with minor digits"
	case job.CodeAmountDigits:
		return "has more digits than its currency; nothing is rounded"
	case job.CodeAmountZero:
		return "must be above zero"
	case job.CodeAmountRange:
		return "does not fit 64 bits of minor units"
	default:
		return "is no plain decimal"
	}
}

// creditorReference checks the digits of ISO 11649: as those of an IBAN.
func creditorReference(text string) bool {
	if len(text) < 5 || len(text) > 25 || !onlyDigits(text[2:4]) {
		return false
	}
	remainder := 0
	for i := range len(text) {
		switch c := text[(i+4)%len(text)]; {
		case c >= '0' && c <= '9':
			remainder = (remainder*10 + int(c-'0')) % 97
		case c >= 'A' && c <= 'Z':
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		default:
			return false
		}
	}
	return remainder == 1
}

// totalsOf are the rows of one level, and what the document says about them. Amounts of all currencies are summed up in hundred thousandths, the
// smallest part that the schema allows, in 128 bits: nothing that fits the schema can overflow them.
type totalsOf struct {
	count, control string // "" = nothing was said
	rows           int
	unreadable     int // rows whose amount is not known
	high, low      uint64
}

const painDigits = 5

func (t *totalsOf) add(amount money.Amount) {
	t.rows++
	digits, ok := money.Digits(amount.Currency)
	if amount.Minor <= 0 || !ok || digits > painDigits {
		t.unreadable++
		return
	}
	factor := uint64(1)
	for range painDigits - digits {
		factor *= 10
	}
	high, low := bits.Mul64(uint64(amount.Minor), factor) //nolint:gosec // above zero
	var carry uint64
	t.low, carry = bits.Add64(t.low, low, 0)
	t.high, _ = bits.Add64(t.high, high, carry)
}

// compare judges NbOfTxs and CtrlSum of one level.
func (s *painSource) compare(level string, t *totalsOf) {
	if count, err := strconv.ParseInt(t.count, 10, 64); err == nil && count != int64(t.rows) {
		s.found(&Fault{Line: s.tokens.line(), Column: level + "/NbOfTxs", Code: "control_count",
			Message: "says " + strconv.FormatInt(count, 10) + ", and there are " + strconv.Itoa(t.rows),
			Hint:    "rows are missing or stand twice: compare with the system that wrote the file"})
	}
	if t.control == "" || t.unreadable > 0 {
		return
	}
	if high, low, ok := controlSum(t.control); !ok || high != t.high || low != t.low {
		s.found(&Fault{Line: s.tokens.line(), Column: level + "/CtrlSum", Code: "control_sum", Message: "is not the sum of the amounts",
			Hint: "an amount or a row is wrong: compare with the system that wrote the file"})
	}
}

// controlSum reads a sum of at most 18 digits; false if it has a part that no amount can have.
func controlSum(text string) (high, low uint64, ok bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if len(fraction) > painDigits {
		if strings.Trim(fraction[painDigits:], "0") != "" {
			return 0, 0, false
		}
		fraction = fraction[:painDigits]
	}
	number, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	factor := uint64(1)
	for range painDigits - len(fraction) {
		factor *= 10
	}
	high, low = bits.Mul64(number, factor)
	return high, low, true
}

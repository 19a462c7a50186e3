package file

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// What is read of pain.001, and what becomes of the rest:
//
//   - The document must have the structure of the official schema: every element in its order, number and form (pain_grammar.go). The namespace is exact.
//   - NbOfTxs and CtrlSum are compared at both levels. CtrlSum is the sum of all amounts whatever their currencies, as the standard says.
//   - A row is a CdtTrfTxInf: EndToEndId (also its row_ref; other rows may have the same), InstdAmt with Ccy, Cdtr/Nm, and the account: an IBAN, perhaps
//     with BIC (BICFI in .09); or an account number (Othr/Id) at an agent of the clearing GBDSC (sort code) or USABA (routing number). The payer is
//     DbtrAcct of its PmtInf, and ReqdExctnDt is not_before: the begin of that day in the place of the options, or that moment; 1999-01-01 is as soon
//     as possible. What the beneficiary reads is one Ustrd, or the reference of one Strd (SCOR, check digits of ISO 11649 if it begins with RF).
//   - An amount may have fewer digits than its currency ("100" or "100.5" EUR): a number of XML has one value, and it is always in the major unit. It is
//     scaled exactly. More digits, also zeros, are refused; nothing is rounded.
//   - What would change the payment, or be lost on its way, is refused and not passed over: cheques (PmtMtd other than TRF, ChqInstr), equivalent amounts,
//     rates of exchange, charges other than SHAR or SLEV, urgent or other service levels, local instruments, intermediary agents, ultimate parties,
//     instructions to agents, proxies of accounts (Prxy), category and purpose codes, UETR, tax and regulatory reports, structured remittance but for the one reference. Some of
//     them, which change nothing about who gets how much, may be dropped by Options.Ignore: see Droppable.
//   - What only describes is passed over: names, addresses and contacts of all parties, the bank of the payer (the route decides), batch booking, InstrId.

// Droppable lists the elements that Options.Ignore may name.
func Droppable() []string {
	return []string{"CtgyPurp", "InstrPrty", "Purp", "RltdRmtInf", "SplmtryData", "SvcLvl", "UETR", "UltmtCdtr", "UltmtDbtr"}
}

// proxyElement is an alias in the place of an account.
const proxyElement = "Prxy"

const painNamespace = "urn:iso:std:iso:20022:tech:xsd:"

// painSource reads pain.001.
type painSource struct {
	tokens    *tokens
	opt       Options
	namespace string
	root      *node
	stack     []frame
	text      []byte
	ccy       string // the attribute of the value at hand
	begun     bool
	done      bool // the document has ended

	header  totalsOf
	payment totalsOf
	payer   payer
	row     transfer
	inRow   bool
	pending []error // found, and not yet given
}

// frame is an element that is open.
type frame struct {
	node  *node
	at    int // which child may come next
	count int // how often that child was there
	line  int
}

func newPain(r io.Reader, format Format, opt Options) (source, error) {
	for _, name := range opt.Ignore {
		if !slices.Contains(Droppable(), name) {
			return nil, fmt.Errorf("open a batch file: %q is no element that may be dropped; these are: %s", name, strings.Join(Droppable(), ", "))
		}
	}
	grammar := grammar03
	if format == FormatPain00109 {
		grammar = grammar09
	}
	return &painSource{tokens: newTokens(r), opt: opt, namespace: painNamespace + string(format), root: compile(grammar, opt.Ignore)}, nil
}

func (s *painSource) trailer() *Totals { return nil }

func (s *painSource) refColumn() (string, int) { return "", 0 } // rows may be called alike

func (s *painSource) next() (Row, error) {
	if !s.begun {
		s.begun = true
		if err := s.tokens.begin(); err != nil {
			return Row{}, err
		}
	}
	for {
		if len(s.pending) > 0 {
			err := s.pending[0]
			s.pending = s.pending[1:]
			return Row{}, err
		}
		token, err := s.tokens.next()
		if errors.Is(err, io.EOF) && !s.done {
			return Row{}, s.tokens.end("no_document", "has no document in it", "the first element must be Document of "+s.namespace)
		}
		if err != nil {
			return Row{}, err
		}
		row, isRow, err := s.take(token)
		if err != nil {
			return Row{}, err
		}
		if isRow {
			return row, nil
		}
	}
}

// take goes one token on.
func (s *painSource) take(token xml.Token) (row Row, isRow bool, err error) {
	switch token := token.(type) {
	case xml.StartElement:
		return Row{}, false, s.start(token)
	case xml.EndElement:
		return s.end()
	case xml.CharData:
		return Row{}, false, s.chars(token)
	case xml.Comment:
		if n := s.open(); n != nil && n.value != nil {
			s.found(s.faultAt(n, "comment_in_value", "has a comment inside of its value", "remove the comment: programs differ in what they read then"))
		}
	}
	return Row{}, false, nil
}

// open is the element that is open; nil outside of the document.
func (s *painSource) open() *node {
	if len(s.stack) == 0 {
		return nil
	}
	return s.stack[len(s.stack)-1].node
}

func (s *painSource) start(e xml.StartElement) error {
	if len(s.stack) == 0 {
		return s.startDocument(e)
	}
	top := &s.stack[len(s.stack)-1]
	if e.Name.Space != s.namespace {
		s.found(s.faultAt(top.node, "namespace", "has an element of another namespace in it", "all elements belong to "+s.namespace))
		return s.skip()
	}
	child, fault := s.place(top, e.Name.Local)
	if fault != nil {
		s.found(fault)
		return s.skip()
	}
	switch {
	case child.refused && child.name == proxyElement:
		s.found(s.faultAt(child, "account_proxy", "names the account by a proxy, such as a telephone number, and where that leads can change",
			"write the account itself, Id/IBAN or Id/Othr/Id, and leave Prxy out"))
	case child.refused:
		hint := "pay this row another way, or let the program that wrote the file leave it out"
		if slices.Contains(Droppable(), child.name) {
			hint += "; if nothing is lost without it, declare that " + child.name + " is ignored"
		}
		s.found(s.faultAt(child, "not_honoured", "asks for something that cannot be honoured", hint))
	}
	if child.refused && child.value == nil || child.opaque {
		return s.skip()
	}
	s.stack = append(s.stack, frame{node: child, line: s.tokens.line()})
	s.text, s.ccy = s.text[:0], ""
	if fault := s.attributes(child, e.Attr); fault != nil {
		s.found(fault)
	}
	s.begin(child.sink)
	return nil
}

func (s *painSource) startDocument(e xml.StartElement) error {
	const hint = "name the format that the file has, or write the file in the format that was named"
	switch {
	case s.done:
		return s.tokens.end("trailing_data", "something follows the document", "send one document per file")
	case e.Name.Local != "Document" || e.Name.Space != s.namespace:
		return s.tokens.end("namespace", "the document is not "+s.namespace+":Document", hint)
	}
	s.stack = append(s.stack, frame{node: s.root, line: s.tokens.line()})
	return nil
}

// place finds the child of a name in what may come next.
func (s *painSource) place(top *frame, name string) (*node, *Fault) {
	children := top.node.children
	if top.node.value != nil || top.node.choice && top.count > 0 {
		return nil, s.unknown(top.node, name)
	}
	for i := top.at; i < len(children); i++ {
		child := children[i]
		if child.name != name {
			continue
		}
		if i > top.at {
			missing := top.missing(i)
			top.at, top.count = i, 0
			if missing != nil && !top.node.choice && name != proxyElement { // which is refused in a sentence that says more
				s.found(s.faultAt(missing, "element_missing", "is not there", "the schema requires it before "+name))
			}
		}
		if top.count++; top.count > child.most {
			return nil, s.faultAt(child, "element_twice", "stands there more often than the schema allows", "leave one of them out")
		}
		return child, nil
	}
	return nil, s.unknown(top.node, name)
}

// missing is the first child before limit that must be there and is not.
func (f *frame) missing(limit int) *node {
	for i := f.at; i < limit; i++ {
		if f.node.children[i].least > 0 && (i > f.at || f.count == 0) {
			return f.node.children[i]
		}
	}
	return nil
}

func (s *painSource) unknown(parent *node, name string) *Fault {
	for _, child := range parent.children {
		if child.name == name {
			return s.faultAt(child, "element_order", "stands behind an element that it must stand before, or beside one that excludes it",
				"the order is that of the schema")
		}
	}
	return s.faultAt(parent, "element_unknown", "has an element in it that the schema does not know there", "compare with the schema of "+s.namespace)
}

// attributes allows Ccy where it belongs, and what only helps to read XML.
func (s *painSource) attributes(n *node, list []xml.Attr) *Fault {
	for _, a := range list {
		switch {
		case a.Name.Space == "xmlns" || a.Name.Space == "" && a.Name.Local == "xmlns":
		case n.value != nil && n.value.kind == "amt" && a.Name.Space == "" && a.Name.Local == "Ccy" && s.ccy == "":
			s.ccy = a.Value
			if !hasShape(a.Value, "AAA") {
				return s.faultAt(n, "currency_form", "has no currency of three upper-case letters", "write Ccy=\"EUR\"")
			}
		default:
			return s.faultAt(n, "attribute", "has an attribute that the schema does not know, or one twice", "leave it out")
		}
	}
	if n.value != nil && n.value.kind == "amt" && s.ccy == "" {
		return s.faultAt(n, "currency_form", "has no currency", "write Ccy=\"EUR\"")
	}
	return nil
}

func (s *painSource) chars(text xml.CharData) error {
	n := s.open()
	switch {
	case n != nil && n.value != nil:
		if len(s.text)+len(text) > maxToken {
			return s.tokens.end("too_large", "a value has more than 65536 bytes", "is an end tag missing?")
		}
		s.text = append(s.text, text...)
	case strings.Trim(string(text), " \t\r\n") == "":
	case n == nil:
		return s.tokens.end("xml_syntax", "has text outside of the document", "send one document per file")
	default:
		s.found(s.faultAt(n, "text_unexpected", "has text where only elements may stand", "compare with the schema"))
	}
	return nil
}

// end closes an element.
func (s *painSource) end() (row Row, isRow bool, err error) {
	top := &s.stack[len(s.stack)-1]
	n := top.node
	switch {
	case n.value != nil:
		s.value(n)
	case n.choice && top.count == 0:
		s.found(s.faultAt(n, "element_missing", "has none of the elements of which it must have one", "the schema requires one"))
	case !n.choice:
		if missing := top.missing(len(n.children)); missing != nil {
			s.found(s.faultAt(missing, "element_missing", "is not there", "the schema requires it"))
		}
	}
	s.stack = s.stack[:len(s.stack)-1]
	s.done = len(s.stack) == 0
	return s.close(n.sink)
}

// value judges a value and puts it where it belongs.
func (s *painSource) value(n *node) {
	text := string(s.text)
	if n.value.collapses() {
		text = strings.Trim(text, " \t\r\n")
	}
	switch message := n.value.check(text); {
	case message != "":
		s.found(s.faultAt(n, codeOf(n.value.kind), message, hintOfValue(n.value.kind)))
	case n.value.honoured != nil && !slices.Contains(n.value.honoured, text):
		s.found(s.faultAt(n, "not_honoured", "asks for something that cannot be honoured", "of its values only these can be: "+strings.Join(n.value.honoured, ", ")))
	default:
		s.set(n.sink, text)
	}
}

func codeOf(kind string) string {
	switch kind {
	case "amt":
		return "amount_form"
	case "iban":
		return "iban_form"
	case "bic3", "bic9":
		return "bic_form"
	case "date", "time":
		return "time_form"
	default:
		return "value_form"
	}
}

func hintOfValue(kind string) string {
	switch kind {
	case "amt", "num":
		return "write 1234.50: digits, a point, digits; no sign and no zeros in front"
	case "date":
		return "write 2026-12-24"
	case "time":
		return "write 2026-12-24T09:00:00Z"
	default:
		return hintOf(codeOf(kind), "")
	}
}

// skip reads to the end of the element that has just begun. It is not pushed to the stack.
func (s *painSource) skip() error {
	for depth := 1; depth > 0; {
		token, err := s.tokens.next()
		if err != nil {
			return err
		}
		switch token.(type) {
		case xml.StartElement:
			if depth++; depth > 100 {
				return s.tokens.end("xml_depth", "has more than 100 elements inside of each other", "compare with the schema")
			}
		case xml.EndElement:
			depth--
		}
	}
	return nil
}

// found notes a fault: of the row, of which the first one counts, or of the file.
func (s *painSource) found(fault *Fault) {
	if !s.inRow {
		s.pending = append(s.pending, fault)
		return
	}
	if s.row.fault == nil {
		s.row.fault = fault
	}
}

func (s *painSource) faultAt(n *node, code, message, hint string) *Fault {
	return &Fault{Line: s.tokens.line(), Column: n.path, Code: code, Message: message, Hint: hint}
}

// dayOrTime writes a date or a time of the document as the contract does.
func dayOrTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }

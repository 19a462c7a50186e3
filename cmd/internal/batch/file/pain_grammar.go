package file

import (
	"slices"
	"strconv"
	"strings"
)

// The structure of pain.001, after the official schemas pain.001.001.03.xsd and pain.001.001.09.xsd of ISO 20022: every element in its order, with its
// number, and with the restriction of its value. One line is one type:
//
//	Type: A=X B?=X C*=X D+=X E{7}=X    a sequence: once, at most once, any number, at least once, at most 7 times
//	Type| A=X B=X                      a choice of one
//
// A type that begins with a lower-case letter is a value: tN text of at most N characters, n15 digits, num a decimal, amt an amount with Ccy, date, time
// (a date and a time), bool, ccy, ctry, bic3 (of 2009) and bic9, iban, uetr, lei, phone, an4, and e with the values there are. After t and e stand the
// values that can be honoured, if not all can: "e:TRF,CHK!,TRA!" and "t4:SEPA,NURG". An element with ! before its name is in the schema and cannot be
// honoured: it would change the payment, or be lost. "-" is the type of one whose inner structure does not matter for that reason.
const grammarCommon = `
Authorisation| Cd=e:AUTH,FDET,FSUM,ILEV Prtry=t128
Code4| Cd=t4 Prtry=t35
Code35| Cd=t35 Prtry=t35
SvcLvl| Cd=t4:SEPA,NURG !Prtry=t35
Account| IBAN=iban Othr=AccountOther
AccountOther: Id=t34 SchmeNm?=AccountScheme Issr?=t35
AccountScheme| Cd=t4:BBAN !Prtry=t35
AnyAccount| IBAN=iban Othr=AnyOther
AnyOther: Id=t34 SchmeNm?=Code4 Issr?=t35
Clearing: ClrSysId?=ClearingSystem MmbId=t35
ClearingSystem| Cd=t5:GBDSC,USABA !Prtry=t35
AnyClearing: ClrSysId?=AnyClearingSystem MmbId=t35
AnyClearingSystem| Cd=t5 Prtry=t35
AgentOther: Id=t35:NOTPROVIDED SchmeNm?=Code4 Issr?=t35
AnyAgentOther: Id=t35 SchmeNm?=Code4 Issr?=t35
Identifier: Id=t35 SchmeNm?=Code4 Issr?=t35
Birth: BirthDt=date PrvcOfBirth?=t35 CityOfBirth=t35 CtryOfBirth=ctry
Person: DtAndPlcOfBirth?=Birth Othr*=Identifier
PartyId| OrgId=Organisation PrvtId=Person
Party: Nm?=t140 PstlAdr?=Address Id?=PartyId CtryOfRes?=ctry CtctDtls?=Contact
Amount| InstdAmt=amt !EqvtAmt=-
Remittance: Ustrd*=t140 Strd*=Structured
RefInf: Tp?=RefType Ref?=t35
RefType: CdOrPrtry=RefCode Issr?=t35
RefCode| Cd=e:RADM!,RPIN!,FXDR!,DISP!,PUOR!,SCOR !Prtry=t35
`

const grammar03 = grammarCommon + `
Document: CstmrCdtTrfInitn=Initiation
Initiation: GrpHdr=Header PmtInf+=Payment
Header: MsgId=t35 CreDtTm=time Authstn{2}=Authorisation NbOfTxs=n15 CtrlSum?=num InitgPty=Party !FwdgAgt?=-
Payment: PmtInfId=t35 PmtMtd=e:TRF,CHK!,TRA! BtchBookg?=bool NbOfTxs?=n15 CtrlSum?=num PmtTpInf?=Type ReqdExctnDt=date !PoolgAdjstmntDt?=date
 Dbtr=Party DbtrAcct=DebtorAccount DbtrAgt=AnyAgent !DbtrAgtAcct?=- !UltmtDbtr?=Party ChrgBr?=e:DEBT!,CRED!,SHAR,SLEV !ChrgsAcct?=- !ChrgsAcctAgt?=-
 CdtTrfTxInf+=Transfer
Type: InstrPrty?=e:HIGH!,NORM SvcLvl?=SvcLvl !LclInstrm?=Code35 !CtgyPurp?=Code4
Transfer: PmtId=PmtId PmtTpInf?=Type Amt=Amount !XchgRateInf?=- ChrgBr?=e:DEBT!,CRED!,SHAR,SLEV !ChqInstr?=- !UltmtDbtr?=Party
 !IntrmyAgt1?=- !IntrmyAgt1Acct?=- !IntrmyAgt2?=- !IntrmyAgt2Acct?=- !IntrmyAgt3?=- !IntrmyAgt3Acct?=- CdtrAgt?=Agent !CdtrAgtAcct?=-
 Cdtr?=Party CdtrAcct?=CreditorAccount !UltmtCdtr?=Party !InstrForCdtrAgt*=- !InstrForDbtrAgt?=t140 !Purp?=Code4 !RgltryRptg{10}=- !Tax?=-
 !RltdRmtInf{10}=- RmtInf?=Remittance
PmtId: InstrId?=t35 EndToEndId=t35
DebtorAccount: Id=AnyAccount Tp?=AccountType Ccy?=ccy Nm?=t70
CreditorAccount: Id=Account Tp?=AccountType Ccy?=ccy Nm?=t70
AccountType| Cd=e:CASH,CHAR,COMM,TAXE,CISH,TRAS,SACC,CACC,SVGS,ONDP,MGLD,NREX,MOMA,LOAN,SLRY,ODFT Prtry=t35
Agent: FinInstnId=Institution !BrnchId?=-
Institution: BIC?=bic3 ClrSysMmbId?=Clearing Nm?=t140 PstlAdr?=Address Othr?=AgentOther
AnyAgent: FinInstnId=AnyInstitution BrnchId?=Branch
AnyInstitution: BIC?=bic3 ClrSysMmbId?=AnyClearing Nm?=t140 PstlAdr?=Address Othr?=AnyAgentOther
Branch: Id?=t35 Nm?=t140 PstlAdr?=Address
Address: AdrTp?=e:ADDR,PBOX,HOME,BIZZ,MLTO,DLVY Dept?=t70 SubDept?=t70 StrtNm?=t70 BldgNb?=t16 PstCd?=t16 TwnNm?=t35 CtrySubDvsn?=t35 Ctry?=ctry
 AdrLine{7}=t70
Organisation: BICOrBEI?=bic3 Othr*=Identifier
Contact: NmPrfx?=e:DOCT,MIST,MISS,MADM Nm?=t140 PhneNb?=phone MobNb?=phone FaxNb?=phone EmailAdr?=t2048 Othr?=t35
Structured: !RfrdDocInf*=- !RfrdDocAmt?=- CdtrRefInf?=RefInf !Invcr?=- !Invcee?=- !AddtlRmtInf{3}=t140
`

const grammar09 = grammarCommon + `
Document: CstmrCdtTrfInitn=Initiation
Initiation: GrpHdr=Header PmtInf+=Payment !SplmtryData*=-
Header: MsgId=t35 CreDtTm=time Authstn{2}=Authorisation NbOfTxs=n15 CtrlSum?=num InitgPty=Party !FwdgAgt?=-
Payment: PmtInfId=t35 PmtMtd=e:TRF,CHK!,TRA! BtchBookg?=bool NbOfTxs?=n15 CtrlSum?=num PmtTpInf?=Type ReqdExctnDt=DateOrTime !PoolgAdjstmntDt?=date
 Dbtr=Party DbtrAcct=DebtorAccount DbtrAgt=AnyAgent !DbtrAgtAcct?=- !InstrForDbtrAgt?=t140 !UltmtDbtr?=Party ChrgBr?=e:DEBT!,CRED!,SHAR,SLEV
 !ChrgsAcct?=- !ChrgsAcctAgt?=- CdtTrfTxInf+=Transfer
DateOrTime| Dt=date DtTm=time
Type: InstrPrty?=e:HIGH!,NORM SvcLvl*=SvcLvl !LclInstrm?=Code35 !CtgyPurp?=Code4
Transfer: PmtId=PmtId PmtTpInf?=Type Amt=Amount !XchgRateInf?=- ChrgBr?=e:DEBT!,CRED!,SHAR,SLEV !ChqInstr?=- !UltmtDbtr?=Party
 !IntrmyAgt1?=- !IntrmyAgt1Acct?=- !IntrmyAgt2?=- !IntrmyAgt2Acct?=- !IntrmyAgt3?=- !IntrmyAgt3Acct?=- CdtrAgt?=Agent !CdtrAgtAcct?=-
 Cdtr?=Party CdtrAcct?=CreditorAccount !UltmtCdtr?=Party !InstrForCdtrAgt*=- !InstrForDbtrAgt?=t140 !Purp?=Code4 !RgltryRptg{10}=- !Tax?=-
 !RltdRmtInf{10}=- RmtInf?=Remittance !SplmtryData*=-
PmtId: InstrId?=t35 EndToEndId=t35 !UETR?=uetr
DebtorAccount: Id=AnyAccount Tp?=Code4 Ccy?=ccy Nm?=t70 !Prxy?=-
CreditorAccount: Id=Account Tp?=Code4 Ccy?=ccy Nm?=t70 !Prxy?=-
Agent: FinInstnId=Institution !BrnchId?=-
Institution: BICFI?=bic9 ClrSysMmbId?=Clearing LEI?=lei Nm?=t140 PstlAdr?=Address Othr?=AgentOther
AnyAgent: FinInstnId=AnyInstitution BrnchId?=Branch
AnyInstitution: BICFI?=bic9 ClrSysMmbId?=AnyClearing LEI?=lei Nm?=t140 PstlAdr?=Address Othr?=AnyAgentOther
Branch: Id?=t35 LEI?=lei Nm?=t140 PstlAdr?=Address
Address: AdrTp?=AddressType Dept?=t70 SubDept?=t70 StrtNm?=t70 BldgNb?=t16 BldgNm?=t35 Flr?=t70 PstBx?=t16 Room?=t70 PstCd?=t16 TwnNm?=t35
 TwnLctnNm?=t35 DstrctNm?=t35 CtrySubDvsn?=t35 Ctry?=ctry AdrLine{7}=t70
AddressType| Cd=e:ADDR,PBOX,HOME,BIZZ,MLTO,DLVY Prtry=Generic30
Generic30: Id=an4 Issr=t35 SchmeNm?=t35
Organisation: AnyBIC?=bic9 LEI?=lei Othr*=Identifier
Contact: NmPrfx?=e:DOCT,MADM,MISS,MIST,MIKS Nm?=t140 PhneNb?=phone MobNb?=phone FaxNb?=phone EmailAdr?=t2048 EmailPurp?=t35 JobTitl?=t35
 Rspnsblty?=t35 Dept?=t70 Othr*=OtherContact PrefrdMtd?=e:LETT,MAIL,PHON,FAXX,CELL
OtherContact: ChanlTp=t4 Id?=t128
Structured: !RfrdDocInf*=- !RfrdDocAmt?=- CdtrRefInf?=RefInf !Invcr?=- !Invcee?=- !TaxRmt?=- !GrnshmtRmt?=- !AddtlRmtInf{3}=t140
`

const unbounded = 1 << 30

// node is one element in its place.
type node struct {
	name     string
	path     string // below CstmrCdtTrfInitn
	least    int
	most     int
	refused  bool // cannot be honoured
	choice   bool
	opaque   bool // its inside is not looked at
	children []*node
	value    *valueType // nil: it has children
	sink     sink
}

// valueType is the restriction of a value.
type valueType struct {
	kind     string
	limit    int
	valid    []string // of an enumeration
	honoured []string // nil = all
}

// compile expands a grammar into the tree of all places. Elements of ignore may be there: they are read and dropped.
func compile(grammar string, ignore []string) *node {
	types := map[string]string{}
	last := ""
	for line := range strings.Lines(grammar) {
		line = strings.TrimRight(line, "\n")
		switch at := strings.IndexAny(line, ":| "); {
		case line == "":
		case line[0] == ' ':
			types[last] += line
		default:
			last = line[:at]
			types[last] = line[at:]
		}
	}
	root := &node{name: "Document", path: "Document", least: 1, most: 1}
	expander{types, ignore}.expand(root, "Document", "", false)
	return root
}

// expander knows the lines of all types.
type expander struct {
	types  map[string]string
	ignore []string
}

// expand gives a node its children. Below an element that is dropped on purpose nothing needs to be honoured.
func (x expander) expand(n *node, typeName, path string, dropped bool) {
	line := x.types[typeName]
	n.choice = line[0] == '|'
	for _, field := range strings.Fields(line[1:]) {
		name, childType, ok := strings.Cut(field, "=")
		if !ok {
			panic("file: the grammar of pain.001 has a child without a type: " + field)
		}
		name, refused := strings.CutPrefix(name, "!")
		child := newNode(name)
		lenient := dropped || slices.Contains(x.ignore, child.name)
		child.refused, child.opaque = refused && !lenient, refused && lenient && childType == "-"
		child.path = child.name
		if path != "" {
			child.path = path + "/" + child.name
		}
		if !lenient {
			child.sink = sinkOf(child.path)
		}
		switch {
		case childType == "-":
		case childType[0] >= 'A' && childType[0] <= 'Z':
			inner := child.path
			if child.name == "CstmrCdtTrfInitn" {
				inner = ""
			}
			x.expand(child, childType, inner, lenient)
		default:
			child.value = valueTypeOf(childType)
			if lenient {
				child.value.honoured = nil
			}
		}
		n.children = append(n.children, child)
	}
}

// newNode reads a name with the sign of its number behind it.
func newNode(name string) *node {
	n := &node{name: name, least: 1, most: 1}
	at := strings.IndexAny(name, "?*+{")
	if at < 0 {
		return n
	}
	n.name = name[:at]
	switch name[at] {
	case '?':
		n.least = 0
	case '*':
		n.least, n.most = 0, unbounded
	case '+':
		n.most = unbounded
	case '{':
		n.least = 0
		n.most, _ = strconv.Atoi(strings.Trim(name[at:], "{}"))
	}
	return n
}

func valueTypeOf(text string) *valueType {
	kind, list, listed := strings.Cut(text, ":")
	v := &valueType{kind: kind}
	if digits := strings.TrimLeft(kind, "t"); kind[0] == 't' && digits != kind && onlyDigits(digits) {
		v.kind = "t"
		v.limit, _ = strconv.Atoi(digits)
	}
	if !listed {
		return v
	}
	for _, value := range strings.Split(list, ",") {
		plain, refused := strings.CutSuffix(value, "!")
		if v.kind == "e" {
			v.valid = append(v.valid, plain)
		}
		if !refused {
			v.honoured = append(v.honoured, plain)
		}
	}
	return v
}

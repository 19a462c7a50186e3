package job

import "strings"

// goodDocuments are accepted by the decoder and by the schema.
func goodDocuments() map[string]string {
	docs := map[string]string{
		"B14 the contract's example":       contractJob,
		"H2 trailing white space":          contractJob + " \n\t\r ",
		"leading white space":              " \n\t\r " + contractJob,
		"A12 upper-case key":               with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "01939E1C-7A52-7C3E-9B6E-2F6F0B0F4A11"),
		"A12 version 4 key":                with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "9b2f1d1e-0c55-4a52-8f0e-5a5f3a0c7e01"),
		"A12 key next to nil":              with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "00000000-0000-0000-0000-000000000001"),
		"A12 key next to max":              with("01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11", "ffffffff-ffff-ffff-ffff-fffffffffffe"),
		"H5 ampersand and angle brackets":  with("A N Example", "A & B <C>"),
		"H5 quotes and backslash":          with("A N Example", `A \"B\" \\ C`),
		"name of 140 code points":          with("A N Example", strings.Repeat("ü", 140)),
		"astral name":                      with("A N Example", "𠮷野"),
		"name by surrogate pair escape":    with("A N Example", `\ud842\udfb7\u91ce`),
		"right to left name":               with("A N Example", "محمد"),
		"reference of 140":                 with("Withdrawal 88104", strings.Repeat("r", 140)),
		"debtor account of 128":            with("cust-4471", strings.Repeat("d", 128)),
		"no reference":                     with(`"reference":"Withdrawal 88104",`, ""),
		"no not_after":                     with(`"not_after":"2026-12-24T00:00:00Z",`, ""),
		"no metadata":                      with(",\n \"metadata\":{\"ticket\":\"88104\"}", ""),
		"empty metadata":                   with(`{"ticket":"88104"}`, "{}"),
		"empty metadata value":             with(`"88104"}`, `""}`),
		"metadata value of 500":            with(`"88104"}`, `"`+strings.Repeat("é", 500)+`"}`),
		"metadata name of 64":              with(`"ticket"`, `"`+strings.Repeat("n", 64)+`"`),
		"metadata of 32":                   with(`{"ticket":"88104"}`, metadataOf(32)),
		"window of times":                  with(`"not_after"`, `"not_before":"2026-12-23T23:59:59.999999999Z","not_after"`),
		"time with an offset":              with("2026-12-24T00:00:00Z", "2026-12-24T05:30:00+05:30"),
		"time with nine digits":            with("2026-12-24T00:00:00Z", "2026-12-24T00:00:00.123456789-23:59"),
		"first year":                       with("2026-12-24T00:00:00Z", "2000-01-01T00:00:00Z"),
		"last second":                      with("2026-12-24T00:00:00Z", "9999-12-31T23:59:59Z"),
		"I1 JPY without digits":            with("49.00", "500", "GBP\",", "JPY\","),
		"I2 KWD with three digits":         with("49.00", "18.600", "GBP\",", "KWD\","),
		"I2 CLF with four digits":          with("49.00", "1.2345", "GBP\",", "CLF\","),
		"I6 the greatest amount":           with("49.00", "92233720368547758.07"),
		"H3 beyond the floats":             with("49.00", "9007199254740993", "GBP\",", "JPY\","),
		"H7 the one spelling":              with("49.00", "1.00"),
		"iban with bic of 8":               with(`555555"}`, `555555","bic":"BUKBGB22"}`),
		"iban with bic of 11":              with(`555555"}`, `555555","bic":"BUKBGB22XXX"}`),
		"sort code":                        paying(`{"name":"A","sort_code":"202015","account_number":"55555555"}`),
		"sort code, other order":           paying(`{"account_number":"00000001","sort_code":"000000","name":"A"}`),
		"routing number":                   paying(`{"name":"A","routing_number":"021000021","account_number":"1"}`),
		"routing number, account of 17":    paying(`{"name":"A","routing_number":"091000019","account_number":"12345678901234567"}`),
		"routing number of an electronic":  paying(`{"name":"A","routing_number":"322271627","account_number":"12345678"}`),
		"pix CPF":                          pixTo("52998224725"),
		"pix CNPJ":                         pixTo("11222333000181"),
		"pix CNPJ with letters":            pixTo("12ABC34501DE35"),
		"pix phone":                        pixTo("+5561912345678"),
		"pix e-mail":                       pixTo("pix.key+1@example.com.br"),
		"pix random key":                   pixTo("123e4567-e12b-12d1-a456-426655440000"),
		"members in another order":         `{"metadata":{},"beneficiary":{"iban":"GB33BUKB20201555555555","name":"A"},"currency":"GBP","amount":"1.00","debtor_account":"d","key":"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11","v":1}`,
		"names by escapes":                 with(`"amount"`, `"\u0061mount"`, `"iban"`, `"ib\u0061n"`, `"ticket"`, `"\u0074icket"`),
		"values by escapes":                with("49.00", `4\u0039.00`, "GBP\",", `\u0047BP",`),
		"metadata name unlike a known one": with(`"ticket"`, `"Amount"`),
	}
	for _, iban := range registryIBANs() {
		docs["IBAN of "+iban[:2]] = ibanOf(iban)
	}
	return docs
}

// registryIBANs are examples published in the registry of ISO 13616, one or more for each length.
func registryIBANs() []string {
	return strings.Fields(`NO9386011117947 BE68539007547034 NL91ABNA0417164300 FI2112345600000785 DK5000400440116243
		FO6264600001631634 FK88SC123456789012 SI56263300012039086 MK07250120000058984 AT611904300234573201 XK051212012345678906
		LT121000011101001000 LU280019400644750000 EE382200221020145685 KZ86125KZT5004100100 BA391290079401028494 MN121234123456789123
		CH9300762011623852957 HR1210010051863000160 LV80BANK0000435195001 LI21088100002324013AA DE89370400440532013000
		GB29NWBK60161331926819 IE29AIBK93115212345678 BG80BNBG96611020345678 GE29NB0000000101904917 ME25505000012345678951
		RS35260005601001611379 CR05015202001026284066 BH67BMAG00001299123456 VA59001123000012345678 GI75NWBK000000007099453
		AE070331234567890123456 IL620108000000099999999 IQ98NBIQ850123456789012 TL380080012345678910157 SO211000001001000100141
		OM810180000001299123456 ES9121000418450200051332 SE4550000000058398257466 CZ6508000000192000145399 SK3112000000198742637541
		RO49AAAA1B31007593840000 AD1200012030200359100100 MD24AG000225100013104168 PK36SCBL0000001123456702 SA0380000000608010167519
		TN5910006035183598478831 VG96VPVG0000012345678901 PT50000201231234567890154 LY83002048000020100120361 ST23000100010051845310146
		IS140159260076545510730339 TR330006100519786457841326 FR1420041010050500013M02606 IT60X0542811101000000123456
		GR1601101250000000012300695 MC5811222000010123456789030 SM86U0322509800000000270100 MR1300020001010000123456753
		BI4210000100010000332045181 DJ2100010000000154000100186 PL61109010140000071219812874 HU42117730161111101800000000
		CY17002001280000001200527600 AL47212110090000000235698741 AZ21NABZ00000000137010001944 BY13NBRB3600900000002Z00AB00
		DO28BAGR00000001212453611324 GT82TRAJ01020000001210029690 LB62099900000001001901229114 SV62CENR00000000000000700025
		NI45BAPR00000013000003558124 HN88CABF00000000000250005469 UA213223130000026007233566001 QA58DOHB00001234567890ABCDEFG
		PS92PALS000000000400123456702 EG380019000500000000263180002 BR1800360305000010009795493C1 KW81CBKU0000000000001234560101
		JO94CBJO0010000000000131000302 MU17BOMM0101101030300200000MUR YE15CBYE0001018861234567891234
		MT84MALT011000012345MTLCAST001S SC18SSCB11010000000000001497USD LC55HEMM000100010012001200023015
		RU0304452522540817810538091310419`)
}

func metadataOf(n int) string {
	var members []string
	for i := range n {
		members = append(members, `"m`+strings.Repeat("x", i)+`":"1"`)
	}
	return "{" + strings.Join(members, ",") + "}"
}

// badDocument is refused by the decoder for one reason. The schema refuses it too, unless schemaSilent says that a
// schema cannot express the fault; bytes says that it is no document that a schema could be asked about.
type badDocument struct {
	doc, code, path string
	schemaSilent    bool
	bytes           bool
}

func badDocuments() map[string]badDocument {
	docs := make(map[string]badDocument)
	for name, d := range badBytes() {
		d.bytes = true
		docs[name] = d
	}
	for _, group := range []map[string]badDocument{badNames(), badScalars(), badBeneficiaries(), badPixKeys(), badText(), badTimes()} {
		for name, d := range group {
			docs[name] = d
		}
	}
	return docs
}

func badBytes() map[string]badDocument {
	const bom = "\xef\xbb\xbf"
	return map[string]badDocument{
		"E14 empty":                          {doc: "", code: CodeEmpty},
		"E14 white space only":               {doc: " \n\t", code: CodeEmpty},
		"E14 not JSON":                       {doc: "hello", code: CodeSyntax},
		"E14 XML":                            {doc: "<job/>", code: CodeSyntax},
		"E14 5 MB":                           {doc: contractJob + strings.Repeat(" ", 5<<20), code: CodeTooLarge},
		"E14 one byte too large":             {doc: contractJob + strings.Repeat(" ", MaxBytes+1-len(contractJob)), code: CodeTooLarge},
		"BOM":                                {doc: bom + contractJob, code: CodeBOM},
		"UTF-16":                             {doc: "\xff\xfe{\x00}\x00", code: CodeBOM},
		"BOM inside":                         {doc: " " + bom + contractJob, code: CodeSyntax},
		"H2 NUL behind":                      {doc: contractJob + "\x00", code: CodeNULByte},
		"H2 NUL before":                      {doc: "\x00" + contractJob, code: CodeNULByte},
		"H2 NUL in a string":                 {doc: with("A N Example", "A\x00B"), code: CodeNULByte},
		"H2 two objects":                     {doc: contractJob + contractJob, code: CodeTrailingData},
		"H2 two objects, a line each":        {doc: contractJob + "\n" + contractJob, code: CodeTrailingData},
		"H2 bracket behind":                  {doc: contractJob + "]", code: CodeTrailingData},
		"H2 brace behind":                    {doc: contractJob + "}", code: CodeTrailingData},
		"H2 comma behind":                    {doc: contractJob + ",", code: CodeTrailingData},
		"H2 null behind":                     {doc: contractJob + " null", code: CodeTrailingData},
		"H2 garbage behind":                  {doc: contractJob + "x", code: CodeTrailingData},
		"invalid UTF-8 in a value":           {doc: with("A N Example", "A \xff B"), code: CodeInvalidUTF8},
		"invalid UTF-8 in a name":            {doc: with(`"ticket"`, "\"tick\xc3\""), code: CodeInvalidUTF8},
		"overlong UTF-8":                     {doc: with("A N Example", "A \xc0\xaf B"), code: CodeInvalidUTF8},
		"surrogate as UTF-8":                 {doc: with("A N Example", "A \xed\xa0\x80 B"), code: CodeInvalidUTF8},
		"half surrogate escape in a value":   {doc: with("A N Example", `A \ud800 B`), code: CodeInvalidUTF8, path: "/beneficiary/name"},
		"half surrogate escape in a name":    {doc: with(`"reference"`, `"\udc00"`), code: CodeInvalidUTF8},
		"half surrogate escape in metadata":  {doc: with(`"ticket"`, `"\udc00"`), code: CodeInvalidUTF8, path: "/metadata"},
		"cut in a value":                     {doc: contractJob[:len(contractJob)-4], code: CodeTruncated, path: "/metadata"},
		"cut behind a member":                {doc: `{"v":1`, code: CodeTruncated},
		"cut behind the brace":               {doc: `{`, code: CodeTruncated},
		"comma before the end":               {doc: with(`{"ticket":"88104"}`, `{"ticket":"88104",}`), code: CodeSyntax, path: "/metadata"},
		"comma before the end of all":        {doc: `{"v":1,}`, code: CodeSyntax},
		"no value":                           {doc: `{"v":}`, code: CodeSyntax, path: "/v"},
		"no value in the beneficiary":        {doc: with(`"A N Example"`, ""), code: CodeSyntax, path: "/beneficiary/name"},
		"no colon":                           {doc: `{"v" 1}`, code: CodeSyntax, path: "/v"},
		"name without quotes":                {doc: `{v:1}`, code: CodeSyntax},
		"single quotes":                      {doc: `{'v':1}`, code: CodeSyntax},
		"comment":                            {doc: "{/**/\"v\":1}", code: CodeSyntax},
		"line break in a string":             {doc: with("A N Example", "A\nB"), code: CodeSyntax, path: "/beneficiary/name"},
		"unknown escape":                     {doc: with("A N Example", `A\x41`), code: CodeSyntax, path: "/beneficiary/name"},
		"leading zero in a number":           {doc: with(`"v":1`, `"v":01`), code: CodeVersionUnknown, path: "/v"},
		"NaN":                                {doc: with(`"v":1`, `"v":NaN`), code: CodeSyntax, path: "/v"},
		"closing bracket first":              {doc: `]`, code: CodeSyntax},
		"H1 amount twice":                    {doc: with(`"currency"`, `"amount":"49.00","currency"`), code: CodeDuplicateName, path: "/amount"},
		"H1 amount twice by an escape":       {doc: with(`"currency"`, `"\u0061mount":"50.00","currency"`), code: CodeDuplicateName, path: "/amount"},
		"H1 version twice":                   {doc: with(`{"v":1`, `{"v":1,"v":1`), code: CodeDuplicateName, path: "/v"},
		"H1 beneficiary twice":               {doc: with(`"metadata"`, `"beneficiary":{},"metadata"`), code: CodeDuplicateName, path: "/beneficiary"},
		"H1 iban twice":                      {doc: with(`"iban"`, `"iban":"GB33BUKB20201555555555","iban"`), code: CodeDuplicateName, path: "/beneficiary/iban"},
		"H1 metadata name twice":             {doc: with(`{"ticket"`, `{"ticket":"1","ticket"`), code: CodeDuplicateName, path: "/metadata/ticket"},
		"H1 metadata name twice, by escape":  {doc: with(`{"ticket"`, `{"ticket":"1","\u0074icket"`), code: CodeDuplicateName, path: "/metadata/ticket"},
		"H1 metadata names by case":          {doc: with(`{"ticket"`, `{"Ticket":"1","ticket"`), code: CodeCaseVariantName, path: "/metadata/ticket"},
		"H1 metadata names by long s":        {doc: with(`{"ticket"`, `{"desk":"1","deſk"`), code: CodeCaseVariantName, path: "/metadata"},
		"H1 metadata names by Kelvin sign":   {doc: with(`{"ticket"`, "{\"ticket\":\"1\",\"tic\u212aet\""), code: CodeCaseVariantName, path: "/metadata"},
		"too deep, and no job":               {doc: strings.Repeat("[", 60000), code: CodeNotAnObject},
		"an array":                           {doc: "[" + contractJob + "]", code: CodeNotAnObject},
		"a string":                           {doc: `"job"`, code: CodeNotAnObject},
		"a number":                           {doc: `1`, code: CodeNotAnObject},
		"null":                               {doc: `null`, code: CodeNotAnObject},
		"true":                               {doc: `true`, code: CodeNotAnObject},
		"first fault of two: syntax is last": {doc: with(`"v":1`, `"v":2`) + "]", code: CodeVersionUnknown, path: "/v"},
	}
}

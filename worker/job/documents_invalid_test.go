package job

import "strings"

func badNames() map[string]badDocument {
	return map[string]badDocument{
		"H1 amount and Amount":            {doc: with(`"currency"`, `"Amount":"50.00","currency"`), code: CodeCaseVariantName, path: "/amount"},
		"H1 Amount alone":                 {doc: with(`"amount"`, `"Amount"`), code: CodeCaseVariantName, path: "/amount"},
		"H1 V":                            {doc: with(`"v"`, `"V"`), code: CodeCaseVariantName, path: "/v"},
		"H1 KEY":                          {doc: with(`"key"`, `"KEY"`), code: CodeCaseVariantName, path: "/key"},
		"H1 Kelvin sign in key":           {doc: with(`"key"`, "\"\u212aey\""), code: CodeCaseVariantName, path: "/key"},
		"H1 Kelvin sign in key, escaped":  {doc: with(`"key"`, `"\u212aey"`), code: CodeCaseVariantName, path: "/key"},
		"H1 Kelvin sign in pix_key":       {doc: with(`"iban"`, "\"pix_\u212aey\""), code: CodeCaseVariantName, path: "/beneficiary/pix_key"},
		"H1 long s in sort_code":          {doc: with(`"iban"`, `"ſort_code"`), code: CodeCaseVariantName, path: "/beneficiary/sort_code"},
		"H1 long s in sort_code, escaped": {doc: with(`"iban"`, `"\u017fort_code"`), code: CodeCaseVariantName, path: "/beneficiary/sort_code"},
		"H1 IBAN":                         {doc: with(`"iban"`, `"IBAN"`), code: CodeCaseVariantName, path: "/beneficiary/iban"},
		"unknown name":                    {doc: with(`"reference"`, `"memo"`), code: CodeUnknownName, path: "/memo"},
		"unknown name of a person":        {doc: with(`"reference"`, `"Jane Doe"`), code: CodeUnknownName},
		"unknown name of an account":      {doc: with(`"reference"`, `"GB33BUKB20201555555555"`), code: CodeUnknownName},
		"unknown empty name":              {doc: with(`"reference"`, `""`), code: CodeUnknownName},
		"source in the body":              {doc: with(`"reference"`, `"source"`), code: CodeUnknownName, path: "/source"},
		"route in the body":               {doc: with(`"reference"`, `"route"`), code: CodeUnknownName, path: "/route"},
		"unknown name in the beneficiary": {doc: with(`"iban"`, `"account"`), code: CodeUnknownName, path: "/beneficiary/account"},
		"name of the other object":        {doc: with(`"iban"`, `"amount"`), code: CodeUnknownName, path: "/beneficiary/amount"},
		"member of the beneficiary above": {doc: with(`"reference"`, `"iban"`), code: CodeUnknownName, path: "/iban"},
		"name with a space":               {doc: with(`"reference"`, `"reference "`), code: CodeUnknownName},
		"no version":                      {doc: with(`{"v":1,`, `{`), code: CodeMissing, path: "/v"},
		"E14 no key":                      {doc: with("\"key\":\"01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11\",\n", ""), code: CodeKeyMissing, path: "/key"},
		"no debtor account":               {doc: with(`"debtor_account":"cust-4471",`, ""), code: CodeMissing, path: "/debtor_account"},
		"no amount":                       {doc: with(`"amount":"49.00",`, ""), code: CodeMissing, path: "/amount"},
		"no currency":                     {doc: with(`"currency":"GBP",`, ""), code: CodeMissing, path: "/currency"},
		"no beneficiary":                  {doc: with(`"beneficiary":{"name":"A N Example","iban":"GB33BUKB20201555555555"},`, ""), code: CodeMissing, path: "/beneficiary"},
		"E14 an empty object":             {doc: `{}`, code: CodeMissing, path: "/v"},
	}
}

func badScalars() map[string]badDocument {
	const key = "01939e1c-7a52-7c3e-9b6e-2f6f0b0f4a11"
	amount := func(text, code string) badDocument {
		return badDocument{doc: with(`"49.00"`, text), code: code, path: "/amount"}
	}
	silent := func(d badDocument) badDocument {
		d.schemaSilent = true
		return d
	}
	return map[string]badDocument{
		"version 2":                {doc: with(`"v":1`, `"v":2`), code: CodeVersionUnknown, path: "/v"},
		"version 1.0":              {doc: with(`"v":1`, `"v":1.0`), code: CodeVersionUnknown, path: "/v", schemaSilent: true},
		"version as a string":      {doc: with(`"v":1`, `"v":"1"`), code: CodeWrongType, path: "/v"},
		"version null":             {doc: with(`"v":1`, `"v":null`), code: CodeNullValue, path: "/v"},
		"A12 nil key":              {doc: with(key, "00000000-0000-0000-0000-000000000000"), code: CodeKeyReserved, path: "/key"},
		"A12 max key":              {doc: with(key, "ffffffff-ffff-ffff-ffff-ffffffffffff"), code: CodeKeyReserved, path: "/key"},
		"A12 max key, upper case":  {doc: with(key, "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF"), code: CodeKeyReserved, path: "/key"},
		"A12 empty key":            {doc: with(key, ""), code: CodeKeyForm, path: "/key"},
		"A12 key cut by one":       {doc: with(key, key[:35]), code: CodeKeyForm, path: "/key"},
		"A12 key longer by one":    {doc: with(key, key+"0"), code: CodeKeyForm, path: "/key"},
		"A12 key with a space":     {doc: with(key, " "+key), code: CodeKeyForm, path: "/key"},
		"A12 key in braces":        {doc: with(key, "{"+key+"}"), code: CodeKeyForm, path: "/key"},
		"A12 key as URN":           {doc: with(key, "urn:uuid:"+key), code: CodeKeyForm, path: "/key"},
		"A12 key without hyphens":  {doc: with(key, strings.ReplaceAll(key, "-", "")), code: CodeKeyForm, path: "/key"},
		"A12 key not hexadecimal":  {doc: with(key, "g"+key[1:]), code: CodeKeyForm, path: "/key"},
		"A12 hyphens moved":        {doc: with(key, "01939e1c7-a52-7c3e-9b6e-2f6f0b0f4a11"), code: CodeKeyForm, path: "/key"},
		"A12 reference as key":     {doc: with(key, "op-10"), code: CodeKeyForm, path: "/key"},
		"key null":                 {doc: with(`"`+key+`"`, "null"), code: CodeNullValue, path: "/key"},
		"key a number":             {doc: with(`"`+key+`"`, "7"), code: CodeWrongType, path: "/key"},
		"H7 1.0":                   silent(amount(`"1.0"`, CodeAmountDigits)),
		"H7 01.00":                 amount(`"01.00"`, CodeAmountForm),
		"H7 1":                     silent(amount(`"1"`, CodeAmountDigits)),
		"H7 +1.00":                 amount(`"+1.00"`, CodeAmountForm),
		"H7 1e2":                   amount(`"1e2"`, CodeAmountForm),
		"H7 1_000":                 amount(`"1_000"`, CodeAmountForm),
		"H7 0x10":                  amount(`"0x10"`, CodeAmountForm),
		"H7 NaN":                   amount(`"NaN"`, CodeAmountForm),
		"I3 excess digits":         silent(amount(`"49.001"`, CodeAmountDigits)),
		"I3 excess zeros":          silent(amount(`"49.000"`, CodeAmountDigits)),
		"I5 0":                     amount(`"0.00"`, CodeAmountZero),
		"I5 -0":                    amount(`"-0.00"`, CodeAmountForm),
		"I5 -1":                    amount(`"-1.00"`, CodeAmountForm),
		"I5 empty":                 amount(`""`, CodeAmountForm),
		"I5 null":                  amount(`null`, CodeNullValue),
		"I6 beyond int64":          silent(amount(`"92233720368547758.08"`, CodeAmountRange)),
		"I6 far beyond int64":      amount(`"`+strings.Repeat("9", 300)+`.00"`, CodeAmountRange),
		"H3 a number":              amount(`9007199254740993`, CodeWrongType),
		"a number with a point":    amount(`49.00`, CodeWrongType),
		"amount an object":         amount(`{"value":"49.00"}`, CodeWrongType),
		"H1 duplicate in a number": amount(`{"a":1,"a":1}`, CodeWrongType),
		"amount an array":          amount(`["49.00"]`, CodeWrongType),
		"amount true":              amount(`true`, CodeWrongType),
		"a separator":              amount(`"1,000.00"`, CodeAmountForm),
		"a space":                  amount(`" 1.00"`, CodeAmountForm),
		"no whole":                 amount(`".50"`, CodeAmountForm),
		"I1 JPY with digits":       {doc: with("GBP\",", "JPY\","), code: CodeAmountDigits, path: "/amount", schemaSilent: true},
		"I2 KWD with two digits":   {doc: with("GBP\",", "KWD\","), code: CodeAmountDigits, path: "/amount", schemaSilent: true},
		"I2 no currency":           {doc: with("GBP\",", "XXX\","), code: CodeCurrencyUnknown, path: "/currency", schemaSilent: true},
		"I2 test currency":         {doc: with("GBP\",", "XTS\","), code: CodeCurrencyUnknown, path: "/currency", schemaSilent: true},
		"I2 gold":                  {doc: with("GBP\",", "XAU\","), code: CodeCurrencyUnknown, path: "/currency", schemaSilent: true},
		"I2 unknown currency":      {doc: with("GBP\",", "ABC\","), code: CodeCurrencyUnknown, path: "/currency", schemaSilent: true},
		"I2 lower-case currency":   {doc: with("GBP\",", "gbp\","), code: CodeCurrencyForm, path: "/currency"},
		"I2 empty currency":        {doc: with("GBP\",", "\","), code: CodeCurrencyForm, path: "/currency"},
		"currency with a space":    {doc: with("GBP\",", "GBP \","), code: CodeCurrencyForm, path: "/currency"},
		"currency null":            {doc: with("\"GBP\",", "null,"), code: CodeNullValue, path: "/currency"},
		"currency a number":        {doc: with("\"GBP\",", "826,"), code: CodeWrongType, path: "/currency"},
	}
}

func badBeneficiaries() map[string]badDocument {
	at := func(path, doc, code string) badDocument {
		return badDocument{doc: doc, code: code, path: "/beneficiary" + path}
	}
	silent := func(path, doc, code string) badDocument {
		return badDocument{doc: doc, code: code, path: "/beneficiary" + path, schemaSilent: true}
	}
	us := func(routing string) string {
		return paying(`{"name":"A","routing_number":"` + routing + `","account_number":"1"}`)
	}
	uk := func(sort, account string) string {
		return paying(`{"name":"A","sort_code":"` + sort + `","account_number":"` + account + `"}`)
	}
	bic := func(text string) string { return with(`555555"}`, `555555","bic":"`+text+`"}`) }
	return map[string]badDocument{
		"beneficiary null":             at("", paying(`null`), CodeNullValue),
		"beneficiary a string":         at("", paying(`"A N Example"`), CodeWrongType),
		"beneficiary an array":         at("", paying(`[]`), CodeWrongType),
		"beneficiary empty":            at("/name", paying(`{}`), CodeMissing),
		"only a name":                  at("", paying(`{"name":"A"}`), CodeBeneficiaryForm),
		"no name":                      at("/name", paying(`{"iban":"GB33BUKB20201555555555"}`), CodeMissing),
		"only a bic":                   at("", paying(`{"name":"A","bic":"BUKBGB22"}`), CodeBeneficiaryForm),
		"only a sort code":             at("", paying(`{"name":"A","sort_code":"202015"}`), CodeBeneficiaryForm),
		"only an account number":       at("", paying(`{"name":"A","account_number":"55555555"}`), CodeBeneficiaryForm),
		"only a routing number":        at("", paying(`{"name":"A","routing_number":"021000021"}`), CodeBeneficiaryForm),
		"iban and account number":      at("", with(`"iban"`, `"account_number":"55555555","iban"`), CodeBeneficiaryForm),
		"iban and pix key":             at("", with(`"iban"`, `"pix_key":"52998224725","iban"`), CodeBeneficiaryForm),
		"both national forms":          at("", paying(`{"name":"A","sort_code":"202015","routing_number":"021000021","account_number":"55555555"}`), CodeBeneficiaryForm),
		"pix key with bic":             at("", paying(`{"name":"A","pix_key":"52998224725","bic":"BUKBGB22"}`), CodeBeneficiaryForm),
		"sort code form with bic":      at("", paying(`{"name":"A","sort_code":"202015","account_number":"55555555","bic":"BUKBGB22"}`), CodeBeneficiaryForm),
		"iban null":                    at("/iban", with(`"GB33BUKB20201555555555"`, "null"), CodeNullValue),
		"iban a number":                at("/iban", with(`"GB33BUKB20201555555555"`, "33"), CodeWrongType),
		"iban with spaces":             at("/iban", ibanOf("GB33 BUKB 2020 1555 5555 55"), CodeIBANForm),
		"iban in lower case":           at("/iban", ibanOf("gb33bukb20201555555555"), CodeIBANForm),
		"iban empty":                   at("/iban", ibanOf(""), CodeIBANForm),
		"iban too short":               at("/iban", ibanOf("GB33"), CodeIBANForm),
		"iban without country":         at("/iban", ibanOf("3333BUKB20201555555555"), CodeIBANForm),
		"iban longer than any":         at("/iban", ibanOf("GB33"+strings.Repeat("0", 31)), CodeIBANForm),
		"iban of no country":           silent("/iban", ibanOf("ZZ33BUKB20201555555555"), CodeIBANCountry),
		"iban of a country without":    silent("/iban", ibanOf("US33BUKB20201555555555"), CodeIBANCountry),
		"iban one short":               silent("/iban", ibanOf("GB33BUKB2020155555555"), CodeIBANLength),
		"iban one long":                silent("/iban", ibanOf("GB33BUKB202015555555555"), CodeIBANLength),
		"iban check digits":            silent("/iban", ibanOf("GB34BUKB20201555555555"), CodeIBANCheckDigits),
		"iban digits exchanged":        silent("/iban", ibanOf("GB33BUKB20205155555555"), CodeIBANCheckDigits),
		"iban of the registry's fault": silent("/iban", ibanOf("GB94BARC20201530093459"), CodeIBANCheckDigits),
		"iban check digits 00":         silent("/iban", ibanOf("GB00BUKB20201555550038"), CodeIBANCheckDigits), // remainder 1, as
		"iban check digits 01":         silent("/iban", ibanOf("GB01BUKB20201555550020"), CodeIBANCheckDigits), // in the next two
		"iban check digits 99":         silent("/iban", ibanOf("GB99BUKB20201555550002"), CodeIBANCheckDigits),
		"bic too short":                at("/bic", bic("BUKBGB2"), CodeBICForm),
		"bic of 9":                     at("/bic", bic("BUKBGB22X"), CodeBICForm),
		"bic in lower case":            at("/bic", bic("bukbgb22"), CodeBICForm),
		"bic without country":          at("/bic", bic("BUKB1B22"), CodeBICForm),
		"bic empty":                    at("/bic", bic(""), CodeBICForm),
		"sort code with hyphens":       at("/sort_code", uk("20-20-15", "55555555"), CodeSortCodeForm),
		"sort code of 5":               at("/sort_code", uk("20201", "55555555"), CodeSortCodeForm),
		"sort code of 7":               at("/sort_code", uk("2020155", "55555555"), CodeSortCodeForm),
		"sort code in wide digits":     at("/sort_code", uk("２０２０１５", "55555555"), CodeSortCodeForm),
		"UK account of 7":              at("/account_number", uk("202015", "5555555"), CodeAccountForm),
		"UK account of 9":              at("/account_number", uk("202015", "555555555"), CodeAccountForm),
		"UK account with letters":      at("/account_number", uk("202015", "5555555A"), CodeAccountForm),
		"routing number of 8":          at("/routing_number", us("02100002"), CodeRoutingForm),
		"routing number with letters":  at("/routing_number", us("02100002A"), CodeRoutingForm),
		"routing number check digit":   silent("/routing_number", us("021000022"), CodeRoutingCheck),
		"routing number exchanged":     silent("/routing_number", us("012000021"), CodeRoutingCheck),
		"routing number of zeros":      silent("/routing_number", us("000000000"), CodeRoutingForm),
		"routing number out of use":    silent("/routing_number", us("990000000"), CodeRoutingForm),
		"US account empty":             at("/account_number", paying(`{"name":"A","routing_number":"021000021","account_number":""}`), CodeAccountForm),
		"US account of 18":             at("/account_number", paying(`{"name":"A","routing_number":"021000021","account_number":"123456789012345678"}`), CodeAccountForm),
	}
}

func badPixKeys() map[string]badDocument {
	at := func(doc, code string) badDocument {
		return badDocument{doc: doc, code: code, path: "/beneficiary/pix_key"}
	}
	silent := func(doc, code string) badDocument {
		return badDocument{doc: doc, code: code, path: "/beneficiary/pix_key", schemaSilent: true}
	}
	return map[string]badDocument{
		"pix CPF check digits":        silent(pixTo("52998224724"), CodePixKeyCheck),
		"pix CPF all alike":           silent(pixTo("11111111111"), CodePixKeyCheck),
		"pix CNPJ check digits":       silent(pixTo("11222333000182"), CodePixKeyCheck),
		"pix CNPJ with letters check": silent(pixTo("12ABC34501DE36"), CodePixKeyCheck),
		"pix CPF with points":         at(pixTo("529.982.247-25"), CodePixKeyForm),
		"pix phone without plus":      at(pixTo("5561912345678"), CodePixKeyForm),
		"pix phone with zero":         at(pixTo("+0561912345678"), CodePixKeyForm),
		"pix phone too long":          at(pixTo("+1234567890123456"), CodePixKeyForm),
		"pix e-mail in upper case":    at(pixTo("Joao@example.com"), CodePixKeyForm),
		"pix e-mail with two at":      at(pixTo("a@b@example.com"), CodePixKeyForm),
		"pix e-mail too long":         at(pixTo(strings.Repeat("a", 66)+"@example.com"), CodePixKeyForm),
		"pix e-mail with empty label": at(pixTo("a@example..com"), CodePixKeyForm),
		"pix e-mail with end hyphen":  at(pixTo("a@example-.com"), CodePixKeyForm),
		"pix e-mail without domain":   at(pixTo("a@"), CodePixKeyForm),
		"pix random in upper case":    at(pixTo("123E4567-E12B-12D1-A456-426655440000"), CodePixKeyForm),
		"pix random, hyphen moved":    at(pixTo("123e4567e-12b-12d1-a456-426655440000"), CodePixKeyForm),
		"pix empty":                   at(pixTo(""), CodePixKeyForm),
		"pix null":                    at(paying(`{"name":"A","pix_key":null}`), CodeNullValue),
	}
}

func badText() map[string]badDocument {
	name := func(text, code string) badDocument {
		return badDocument{doc: with("A N Example", text), code: code, path: "/beneficiary/name"}
	}
	reference := func(text, code string) badDocument {
		return badDocument{doc: with("Withdrawal 88104", text), code: code, path: "/reference"}
	}
	metadata := func(text, code, path string) badDocument {
		return badDocument{doc: with(`{"ticket":"88104"}`, text), code: code, path: "/metadata" + path}
	}
	return map[string]badDocument{
		"name empty":                       name("", CodeTextEmpty),
		"name a space":                     name(" ", CodeTextSpace),
		"name with a space before":         name(" A", CodeTextSpace),
		"name with a space behind":         name("A\u00a0", CodeTextSpace),
		"name of 141":                      name(strings.Repeat("ü", 141), CodeTextTooLong),
		"name with escaped NUL":            name(`A\u0000B`, CodeNULByte),
		"name with escaped line break":     name(`A\nB`, CodeControlCharacter),
		"name with tab":                    name(`A\tB`, CodeControlCharacter),
		"name with DEL":                    name("A\u007fB", CodeControlCharacter),
		"name with C1 control":             name("A\u0085B", CodeControlCharacter),
		"name with line separator":         name("A\u2028B", CodeControlCharacter),
		"name with change of direction":    name("A\u202eB", CodeControlCharacter),
		"name with isolate":                name("A\u2066B", CodeControlCharacter),
		"name with byte order mark":        name("A\ufeffB", CodeControlCharacter),
		"name null":                        {doc: with(`"A N Example"`, "null"), code: CodeNullValue, path: "/beneficiary/name"},
		"name an object":                   {doc: with(`"A N Example"`, "{}"), code: CodeWrongType, path: "/beneficiary/name"},
		"reference empty":                  reference("", CodeTextEmpty),
		"reference of 141":                 reference(strings.Repeat("r", 141), CodeTextTooLong),
		"reference with escape character":  reference(`A\u001b[31mB`, CodeControlCharacter),
		"reference null":                   {doc: with(`"Withdrawal 88104"`, "null"), code: CodeNullValue, path: "/reference"},
		"reference a number":               {doc: with(`"Withdrawal 88104"`, "88104"), code: CodeWrongType, path: "/reference"},
		"debtor account empty":             {doc: with("cust-4471", ""), code: CodeTextEmpty, path: "/debtor_account"},
		"debtor account of 129":            {doc: with("cust-4471", strings.Repeat("d", 129)), code: CodeTextTooLong, path: "/debtor_account"},
		"debtor account with line break":   {doc: with("cust-4471", `a\r\nb`), code: CodeControlCharacter, path: "/debtor_account"},
		"debtor account null":              {doc: with(`"cust-4471"`, "null"), code: CodeNullValue, path: "/debtor_account"},
		"metadata null":                    metadata(`null`, CodeNullValue, ""),
		"metadata an array":                metadata(`[]`, CodeWrongType, ""),
		"metadata a string":                metadata(`"88104"`, CodeWrongType, ""),
		"metadata value null":              metadata(`{"ticket":null}`, CodeNullValue, "/ticket"),
		"H3 metadata value a number":       metadata(`{"ticket":9007199254740993}`, CodeWrongType, "/ticket"),
		"H1 metadata value an object":      metadata(`{"ticket":{"a":1,"a":2}}`, CodeWrongType, "/ticket"),
		"metadata value of 501":            metadata(`{"ticket":"`+strings.Repeat("é", 501)+`"}`, CodeTextTooLong, "/ticket"),
		"metadata value with NUL":          metadata(`{"ticket":"\u0000"}`, CodeNULByte, "/ticket"),
		"metadata value with line break":   metadata(`{"ticket":"a\nb"}`, CodeControlCharacter, "/ticket"),
		"metadata of 33":                   metadata(metadataOf(33), CodeMetadataTooMany, ""),
		"metadata name empty":              metadata(`{"":"1"}`, CodeMetadataName, ""),
		"metadata name of 65":              metadata(`{"`+strings.Repeat("n", 65)+`":"1"}`, CodeMetadataName, ""),
		"metadata name with a space":       metadata(`{"Jane Doe":"1"}`, CodeMetadataName, ""),
		"metadata name begins with hyphen": metadata(`{"-a":"1"}`, CodeMetadataName, ""),
		"metadata name with accent":        metadata(`{"é":"1"}`, CodeMetadataName, ""),
	}
}

func badTimes() map[string]badDocument {
	after := func(text, code string) badDocument {
		return badDocument{doc: with("2026-12-24T00:00:00Z", text), code: code, path: "/not_after"}
	}
	silent := func(d badDocument) badDocument {
		d.schemaSilent = true
		return d
	}
	return map[string]badDocument{
		"time empty":                after("", CodeTimeForm),
		"time a date":               after("2026-12-24", CodeTimeForm),
		"time without offset":       after("2026-12-24T00:00:00", CodeTimeForm),
		"time with a space":         after("2026-12-24 00:00:00Z", CodeTimeForm),
		"time in lower case":        after("2026-12-24t00:00:00z", CodeTimeForm),
		"time with one digit":       after("2026-12-24T0:00:00Z", CodeTimeForm),
		"time with a comma":         after("2026-12-24T00:00:00,5Z", CodeTimeForm),
		"time with ten digits":      after("2026-12-24T00:00:00.1234567890Z", CodeTimeForm),
		"time with a point only":    after("2026-12-24T00:00:00.Z", CodeTimeForm),
		"time with hour 24":         after("2026-12-24T24:00:00Z", CodeTimeForm),
		"time with leap second":     after("2026-12-31T23:59:60Z", CodeTimeForm),
		"time with offset 24":       after("2026-12-24T00:00:00+24:00", CodeTimeForm),
		"time with short offset":    after("2026-12-24T00:00:00+0100", CodeTimeForm),
		"time with month 13":        after("2026-13-24T00:00:00Z", CodeTimeForm),
		"time on 31 November":       silent(after("2026-11-31T00:00:00Z", CodeTimeForm)),
		"time on 29 February":       silent(after("2027-02-29T00:00:00Z", CodeTimeForm)),
		"time in year 1":            after("0001-01-01T00:00:00Z", CodeTimeRange),
		"time in 1998":              after("1998-12-31T00:00:00Z", CodeTimeRange),
		"time before 2000":          silent(after("1999-12-31T23:59:59Z", CodeTimeRange)),
		"time before 2000, as UTC":  silent(after("2000-01-01T00:00:00+00:01", CodeTimeRange)),
		"time beyond 9999, as UTC":  silent(after("9999-12-31T23:59:59-00:01", CodeTimeRange)),
		"time as seconds":           {doc: with(`"2026-12-24T00:00:00Z"`, "1798070400"), code: CodeWrongType, path: "/not_after"},
		"time null":                 {doc: with(`"2026-12-24T00:00:00Z"`, "null"), code: CodeNullValue, path: "/not_after"},
		"not_before null":           {doc: with(`"not_after"`, `"not_before":null,"not_after"`), code: CodeNullValue, path: "/not_before"},
		"not_before no time":        {doc: with(`"not_after"`, `"not_before":"now","not_after"`), code: CodeTimeForm, path: "/not_before"},
		"window of no length":       {doc: with(`"not_after"`, `"not_before":"2026-12-24T01:00:00+01:00","not_after"`), code: CodeWindowEmpty, path: "/not_after", schemaSilent: true},
		"window the wrong way":      {doc: with(`"not_after"`, `"not_before":"2026-12-24T00:00:00.000000001Z","not_after"`), code: CodeWindowEmpty, path: "/not_after", schemaSilent: true},
		"window, the other order":   {doc: with(`"metadata"`, `"not_before":"2027-01-01T00:00:00Z","metadata"`), code: CodeWindowEmpty, path: "/not_after", schemaSilent: true},
		"time longer than any time": after(strings.Repeat("2", 200), CodeTimeForm),
	}
}

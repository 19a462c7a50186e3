package job

// setBeneficiary checks one member of the beneficiary and sets it.
func setBeneficiary(b *Beneficiary, f field, text string) *Fault {
	switch f {
	case fieldName:
		name, fault := checkText(f, text, MaxName)
		b.Name = name
		return fault
	case fieldIBAN:
		b.IBAN = Sensitive(text)
		return checkIBAN(text)
	case fieldBIC:
		b.BIC = Sensitive(text)
		return checkBIC(text)
	case fieldSortCode:
		b.SortCode = Sensitive(text)
		if len(text) != 6 || !only(text, digit) {
			return refuse(CodeSortCodeForm, f.path(), "must be 6 digits")
		}
	case fieldAccountNumber:
		b.AccountNumber = Sensitive(text)
		// Eight digits behind a sort code; which of the two forms it is may not be known yet, see checkForm.
		if text == "" || len(text) > maxUSAccountNumber || !only(text, digit) {
			return refuse(CodeAccountForm, f.path(), "must be digits: 8 with a sort code, 1 to 17 with a routing number")
		}
	case fieldRoutingNumber:
		b.RoutingNumber = Sensitive(text)
		return checkRoutingNumber(text)
	case fieldPixKey:
		b.PixKey = Sensitive(text)
		return checkPixKey(text)
	}
	return nil
}

// checkForm asks for the members of exactly one form, so that nobody has to decide which of two accounts is meant.
func checkForm(r *reader) *Fault {
	const group = 1<<fieldIBAN | 1<<fieldBIC | 1<<fieldSortCode | 1<<fieldAccountNumber | 1<<fieldRoutingNumber | 1<<fieldPixKey
	if !r.seen.has(fieldName) {
		return refuse(CodeMissing, fieldName.path(), "the contract requires it")
	}
	switch r.seen & group {
	case setOf(fieldIBAN), setOf(fieldIBAN, fieldBIC), setOf(fieldRoutingNumber, fieldAccountNumber), setOf(fieldPixKey):
		return nil
	case setOf(fieldSortCode, fieldAccountNumber):
		if len(r.job.Beneficiary.AccountNumber) != 8 {
			return refuse(CodeAccountForm, fieldAccountNumber.path(), "must be 8 digits with a sort code")
		}
		return nil
	default:
		return refuse(CodeBeneficiaryForm, fieldBeneficiary.path(), "must have iban (and perhaps bic), or sort_code and "+
			"account_number, or routing_number and account_number, or pix_key")
	}
}

// checkIBAN checks form, country, its length, and the check digits of ISO 13616 (mod 97).
func checkIBAN(text string) *Fault {
	path := fieldIBAN.path()
	if len(text) < 5 || len(text) > 34 || !only(text[:2], upper) || !only(text[2:4], digit) || !only(text[4:], upperOrDigit) {
		return refuse(CodeIBANForm, path, "must be upper-case letters and digits without spaces, a country and two digits first")
	}
	length := ibanLength(text[:2])
	if length == 0 {
		return refuse(CodeIBANCountry, path, "begins with a country that has no IBAN")
	}
	if len(text) != length {
		return refuse(CodeIBANLength, path, "has not the length of its country")
	}
	check := text[2:4]
	if check == "00" || check == "01" || check == "99" || mod97(text) != 1 {
		// 00, 01 and 99 can satisfy the remainder too, but are never issued: 02 to 98 are.
		return refuse(CodeIBANCheckDigits, path, "fails its check digits")
	}
	return nil
}

// mod97 is the remainder of the IBAN, its first four characters moved to the end and letters counted from 10.
func mod97(iban string) int {
	remainder := 0
	for i := range len(iban) {
		c := iban[(i+4)%len(iban)]
		if digit(c) {
			remainder = (remainder*10 + int(c-'0')) % 97
		} else {
			remainder = (remainder*100 + int(c-'A') + 10) % 97
		}
	}
	return remainder
}

// ibanLength is the length of IBANs of a country by the registry of SWIFT (ISO 13616); 0: it has none.
func ibanLength(country string) int {
	switch country {
	case "NO":
		return 15
	case "BE":
		return 16
	case "DK", "FI", "FK", "FO", "GL", "NL", "SD":
		return 18
	case "MK", "SI":
		return 19
	case "AT", "BA", "EE", "KZ", "LT", "LU", "MN", "XK":
		return 20
	case "CH", "HR", "LI", "LV":
		return 21
	case "BG", "BH", "CR", "DE", "GB", "GE", "IE", "ME", "RS", "VA":
		return 22
	case "AE", "GI", "IL", "IQ", "OM", "SO", "TL":
		return 23
	case "AD", "CZ", "ES", "MD", "PK", "RO", "SA", "SE", "SK", "TN", "VG":
		return 24
	case "LY", "PT", "ST":
		return 25
	case "IS", "TR":
		return 26
	case "BI", "DJ", "FR", "GR", "IT", "MC", "MR", "SM":
		return 27
	case "AL", "AZ", "BY", "CY", "DO", "GT", "HN", "HU", "LB", "NI", "PL", "SV":
		return 28
	case "BR", "EG", "PS", "QA", "UA":
		return 29
	case "JO", "KW", "MU", "YE":
		return 30
	case "MT", "SC":
		return 31
	case "LC":
		return 32
	case "RU":
		return 33
	default:
		return 0
	}
}

// checkBIC checks the shape of ISO 9362: four of the party, two letters of the country, two of the place, and perhaps
// three of the branch.
func checkBIC(text string) *Fault {
	if len(text) != 8 && len(text) != 11 || !only(text, upperOrDigit) || !only(text[4:6], upper) {
		return refuse(CodeBICForm, fieldBIC.path(), "must be 8 or 11 upper-case letters and digits, the country at the fifth")
	}
	return nil
}

// checkRoutingNumber checks an ABA number: nine digits, a prefix that is in use, and its check digit.
func checkRoutingNumber(text string) *Fault {
	path := fieldRoutingNumber.path()
	if len(text) != 9 || !only(text, digit) {
		return refuse(CodeRoutingForm, path, "must be 9 digits")
	}
	sum := 0
	for i, weight := range [9]int{3, 7, 1, 3, 7, 1, 3, 7, 1} {
		sum += weight * int(text[i]-'0')
	}
	if sum%10 != 0 {
		return refuse(CodeRoutingCheck, path, "fails its check digit")
	}
	prefix := int(text[0]-'0')*10 + int(text[1]-'0')
	inUse := prefix <= 12 || prefix >= 21 && prefix <= 32 || prefix >= 61 && prefix <= 72 || prefix == 80
	if !inUse || text == "000000000" {
		return refuse(CodeRoutingForm, path, "begins with two digits that are not in use")
	}
	return nil
}

// checkPixKey checks the shapes of the Brazilian directory: tax number of a person (11 digits) or a company (14, the
// first 12 also letters), phone, e-mail, random key.
func checkPixKey(text string) *Fault {
	path := fieldPixKey.path()
	switch {
	case len(text) == 11 && only(text, digit), len(text) == 14 && only(text[:12], upperOrDigit) && only(text[12:], digit):
		if !taxNumberChecks(text) {
			return refuse(CodePixKeyCheck, path, "fails its check digits")
		}
		return nil
	case pixPhone(text), pixEmail(text), pixRandom(text):
		return nil
	}
	return refuse(CodePixKeyForm, path, "must be a CPF, a CNPJ, a phone number with +, a lower-case e-mail address or a random key")
}

// taxNumberChecks computes both check digits of a CPF (11) or CNPJ (14). Weights rise from 2 at the right end; those of a
// CNPJ begin again after 9.
func taxNumberChecks(text string) bool {
	last := 11
	if len(text) == 14 {
		last = 9
	}
	same := true
	for i := range len(text) {
		same = same && text[i] == text[0]
	}
	if same {
		return false // 111.111.111-11 and its like satisfy the sums, and are never issued
	}
	for n := len(text) - 2; n < len(text); n++ {
		sum, weight := 0, 2
		for i := n - 1; i >= 0; i-- {
			sum += weight * int(text[i]-'0') // letters of a CNPJ count as their ASCII distance from '0'
			if weight++; weight > last {
				weight = 2
			}
		}
		want := 0
		if rest := sum % 11; rest >= 2 {
			want = 11 - rest
		}
		if int(text[n]-'0') != want {
			return false
		}
	}
	return true
}

func pixPhone(text string) bool {
	return len(text) >= 4 && len(text) <= 16 && text[0] == '+' && text[1] != '0' && only(text[1:], digit)
}

// pixEmail checks what the directory asks for: lower case, at most 77 characters.
func pixEmail(text string) bool {
	at := -1
	for i := range len(text) {
		if text[i] == '@' {
			if at >= 0 {
				return false
			}
			at = i
		}
	}
	if at < 1 || len(text) > 77 {
		return false
	}
	return only(text[:at], emailLocal) && emailDomain(text[at+1:])
}

func emailLocal(c byte) bool {
	switch c {
	case '.', '!', '#', '$', '&', '\'', '*', '+', '/', '=', '?', '^', '_', '`', '{', '|', '}', '~', '-', '%':
		return true
	}
	return digit(c) || c >= 'a' && c <= 'z'
}

// emailDomain checks labels between dots: letters, digits, and hyphens inside.
func emailDomain(domain string) bool {
	start := 0
	for i := 0; i <= len(domain); i++ {
		if i < len(domain) && domain[i] != '.' {
			if c := domain[i]; !digit(c) && (c < 'a' || c > 'z') && c != '-' {
				return false
			}
			continue
		}
		label := domain[start:i]
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		start = i + 1
	}
	return true
}

func pixRandom(text string) bool {
	if len(text) != 36 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if !digit(c) && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

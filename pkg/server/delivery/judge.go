package delivery

import "time"

// Issued is a certificate that an instance is known to have.
type Issued struct {
	Content Sum // of the file
	Request Sum // of the certificate's request, as in Wanted.Sum
}

// Known is what the server knows about an instance besides its report.
type Known struct {
	Keys   map[string]Sum    // submitted keys, by name
	Issued map[string]Issued // by file name
	CAEnd  time.Time         // no certificate is valid for longer
}

// Decision is what to do about an instance's files.
type Decision struct {
	Push  bool     // send a commit, after the files of Send
	Send  []Wanted // in the order of the set
	Await []string // names of keys that must be submitted before anything is sent
	Adopt []Wanted // certificates that the instance already has
}

// Judge compares the desired set with an instance's report. It is a pure function. report must
// be tidy.
//
// A certificate is up to date if it is for the submitted key, has more than a third of its
// life left (or can't be valid for longer, because the CA is not), and has the desired
// contents. The contents are known only for remembered certificates; another one is accepted
// if the report has the desired config hash.
func Judge(want *Set, report *FileReport, known Known, now time.Time) Decision {
	d := Decision{Push: report.ConfigHash != want.Hash}
	for f, st := range want.in(report) {
		if st == nil {
			st = &FileStatus{Name: f.Name} // missing
		}
		switch {
		case f.Left:
		case f.Key != "":
			d.certificate(*f, *st, report.ConfigHash == want.Hash, known, now)
		case st.State != Present || st.SHA256 != f.Sum:
			d.Send = append(d.Send, *f)
		}
	}
	d.Push = (d.Push || len(d.Send) > 0) && len(d.Await) == 0
	if !d.Push {
		d.Send = nil
	}
	return d
}

// certificate judges one certificate. current: the report has the desired config hash.
func (d *Decision) certificate(f Wanted, st FileStatus, current bool, known Known, now time.Time) {
	key, submitted := known.Keys[f.Key]
	if !submitted {
		d.Await = append(d.Await, f.Key)
		return
	}
	issued, remembered := known.Issued[f.Name]
	remembered = remembered && issued.Content == st.SHA256
	switch {
	case st.State != Present || st.PublicKey != key || due(st.NotAfter, f.TTL, known.CAEnd, now):
		d.Send = append(d.Send, f)
	case remembered && issued.Request == f.Sum:
	case remembered || !current:
		d.Send = append(d.Send, f)
	default:
		d.Adopt = append(d.Adopt, f)
	}
}

// due reports whether a certificate that expires at notAfter must be renewed.
func due(notAfter time.Time, life time.Duration, end, now time.Time) bool {
	return notAfter.Sub(now) <= life/3 && notAfter.Before(end)
}

package delivery

import "time"

// Issued is a certificate that an instance is known to hold.
type Issued struct {
	Content Sum // of the file
	Request Sum // of what it says, as in Wanted.Sum
}

// Known is what is known of an instance beside its report.
type Known struct {
	Keys   map[string]Sum    // that it submitted, by name
	Issued map[string]Issued // by the name of the file
	CAEnd  time.Time         // no certificate lasts longer
}

// Decision is what is to be done about an instance's files.
type Decision struct {
	Push  bool     // a commit is to be sent, with the files of Send before it
	Send  []Wanted // in the order of the set
	Await []string // the names of keys without which nothing can be sent
	Adopt []Wanted // certificates that the instance shows to hold already
}

// Judge compares what an instance is to have with what it says that it has. It
// knows nothing but its arguments. report must be in the order of the names.
//
// A certificate is in order when it is for the submitted key, has more than a
// third of its life left (or can't last longer, because its CA does not), and
// says what it should. What it says shows only in that it is one that was issued
// before; one that nobody remembers is taken for right if the whole set is said
// to be of the wanted hash.
func Judge(want *Set, report *FileReport, known Known, now time.Time) Decision {
	d := Decision{Push: report.ConfigHash != want.Hash}
	for _, f := range want.Files {
		st := report.file(f.Name)
		switch {
		case f.Key != "":
			d.certificate(f, st, report.ConfigHash == want.Hash, known, now)
		case st.State != Present || st.SHA256 != f.Sum:
			d.Send = append(d.Send, f)
		}
	}
	d.Push = (d.Push || len(d.Send) > 0) && len(d.Await) == 0
	if !d.Push {
		d.Send = nil
	}
	return d
}

// certificate judges one certificate. current: the whole set is said to be the
// wanted one.
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

// due reports whether a certificate that ends at notAfter is to be renewed.
func due(notAfter time.Time, life time.Duration, end, now time.Time) bool {
	return notAfter.Sub(now) <= life/3 && notAfter.Before(end)
}

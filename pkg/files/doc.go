// Package files is what an instance receives: which names and contents a file
// may have, and how a whole set of files gets onto a disk.
//
// A set takes the place of the one before it as a whole or not at all. Dir keeps
// its own things in a hidden folder inside the directory, so that everything lies
// on one file system:
//
//	.nstance/stage/   the files of a set that is being taken over, synced to disk
//	.nstance/old/     what they replace or remove, as hard links where possible
//	.nstance/commit   the new manifest: from here on the set is the new one
//	.nstance/undo     the same, when putting the files in their places failed
//	.nstance/manifest the hash and the names of the set that is in place
//	config.hash       the hash of the set, for readers; written last
//
// Until commit is there a crash leaves the old set; once it is there, the next
// start puts what is missing in place. What can't be put in place (a folder that
// somebody made meanwhile, a disk that is full to the last block) is taken back
// from old. Every file is renamed into its place, so that nobody ever reads half
// of one; POSIX has no rename of several files at once, so a reader that needs
// several of one set waits for config.hash to change.
//
// What comes from a server is not trusted. Names are plain base names with a
// known extension, everything is done below an os.Root, new files are made
// exclusively, and a symbolic link that stands in the place of a file is replaced
// and never followed. Nothing that no set has placed is ever removed.
package files

/* Stands in the place of a program, and starts it by a C library of its own.
 *
 *   PREFIX/bin/TRIPLE-gcc, HOME/bin/gcc, HOME/lib/gcc/TRIPLE/12/cc1 …   this
 *   HOME/programs/gcc, cc1 …                      the programs, and libraries of their own
 *   PREFIX/x86_64-conda-linux-gnu/runtime/        ld-linux-x86-64.so.2, libc.so.6 and others
 *
 * So they run on any Linux, whatever its C library or none, and no file names the prefix. HOME is
 * PREFIX/…/gcc for compilers, PREFIX/…/tools for others; from this file's folder it is UP folders up
 * and then DOWN. Static, without any library. Beside UP, DOWN and TRIPLE, which begins its own name
 * before a dash, it knows
 *
 *   USERS                 what is compiled finds the prefix's libraries
 *   VARIABLE, VALUE       a variable that the program gets, and its value, a path below HOME
 *   OPTION                an option that the program gets before all others
 */
enum { PATH = 4096, READLINK = 89, EXECVE = 59, WRITE = 1, EXIT = 60 };
enum { NOENT = 2, ACCES = 13, NOMEM = 12, TOOBIG = 7, AT_EXECFN = 31 };

static long call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}

static unsigned long length(const char *text) {
  unsigned long n = 0;
  while (text[n]) ++n;
  return n;
}

static int begins(const char *text, const char *start) {
  while (*start)
    if (*text++ != *start++) return 0;
  return 1;
}

static int ends(const char *text, const char *end) {
  unsigned long n = length(text), m = length(end);
  return n >= m && begins(text + n - m, end);
}

static int same(const char *a, const char *b) { return begins(a, b) && length(a) == length(b); }

/* The parts one after the other, cut at the end of the place. */
static char *join(char *place, const char *a, const char *b, const char *c) {
  const char *parts[] = {a, b, c};
  unsigned long n = 0;
  for (int i = 0; i < 3; ++i)
    for (const char *each = parts[i]; *each && n < PATH - 1; ++each) place[n++] = *each;
  place[n] = 0;
  return place;
}

/* The path without its last parts; nothing is left of one that has fewer. */
static char *up(char *path, int parts) {
  unsigned long n = length(path);
  for (; parts > 0; --parts) {
    while (n > 0 && path[n - 1] != '/') --n;
    if (n > 0) --n;
  }
  path[n] = 0;
  return path;
}

/* The path without `x/..`: GCC calls its parts so. */
static char *plain(char *path) {
  char *to = path;
  for (const char *from = path; *from; ++from) {
    *to++ = *from;
    if (begins(from, "/../") || same(from, "/..")) {
      *--to = 0;
      to = path + length(up(path, 1));
      from += 2;
    }
  }
  *to = 0;
  return path;
}

static void say(const char *text) { call(WRITE, 2, (long)text, (long)length(text)); }

static void die(const char *name, const char *what, const char *path, const char *rest) {
  say(name), say(": "), say(what), say(path), say(rest), say("\n");
  call(EXIT, 126, 0, 0);
  __builtin_unreachable();
}

static const char *value(char **environment, const char *name) {
  for (; *environment; ++environment)
    if (begins(*environment, name)) return *environment + length(name);
  return "";
}

/* Whether a path has one of the letters. */
static int has(const char *path, const char *letters) {
  for (; *path; ++path)
    for (const char *each = letters; *each; ++each)
      if (*path == *each) return 1;
  return 0;
}

/* A folder or file of the machine in which headers and libraries are. */
static int machines(const char *path) {
  static const char *const folders[] = {
      "/usr/include", "/usr/local/include", "/usr/lib", "/usr/lib64", "/lib", "/lib64"};
  for (unsigned i = 0; i < sizeof folders / sizeof *folders; ++i)
    if (begins(path, folders[i]) &&
        (path[length(folders[i])] == 0 || path[length(folders[i])] == '/'))
      return 1;
  return 0;
}

/* In the build of a package: an option that names the machine's files would spoil it. */
static void refuse_machine(const char *name, char **words) {
  static const char *const options[] = {"-I", "-L", "-B", "-isystem", "-idirafter", "-iquote"};
  const char *last = "";
  for (; *words; last = *words++) {
    const char *path = ends(*words, ".so") || ends(*words, ".a") || ends(*words, ".o") ? *words : 0;
    for (unsigned i = 0; i < sizeof options / sizeof *options; ++i) {
      if (same(last, options[i])) path = *words;
      if (begins(*words, options[i]) && (*words)[length(options[i])] == '/')
        path = *words + length(options[i]);
    }
    if (path && machines(path))
      die(name, "a file or folder of the machine, in the build of a package: ", path,
          "\n  Take it out of the build: what the sysroot has is found without an option");
  }
}

__attribute__((used)) static void start(long *stack) {
  long count = stack[0];
  char **words = (char **)(stack + 1), **environment = words + count + 1, **each = environment;
  while (*each) ++each;
  const char *invoked = count ? words[0] : "";
  for (long *auxiliary = (long *)(each + 1); auxiliary[0]; auxiliary += 2)
    if (auxiliary[0] == AT_EXECFN) invoked = (const char *)auxiliary[1];

  /* Where this file is; without /proc, as it was called. */
  static char self[PATH], home[PATH], folder[PATH], prefix[PATH], runtime[PATH], loader[PATH],
      programs[PATH], folders[2 * PATH], program[PATH];
  long n = call(READLINK, (long)"/proc/self/exe", (long)self, PATH - 1);
  if (n <= 0) plain(join(self, invoked, "", ""));
  const char *name = self + length(self);
  while (name > self && name[-1] != '/') --name;
  if (*self != '/') die(name, "without /proc, call it by its full path, not as ", self, "");
  if (begins(name, TRIPLE "-")) name += length(TRIPLE "-");
  join(home, up(join(folder, self, "", ""), UP + 1), DOWN, "");
  up(join(folder, home, "", ""), 1);
  up(join(prefix, folder, "", ""), 1);
  join(runtime, prefix, "/x86_64-conda-linux-gnu/runtime", "");
  join(loader, runtime, "/ld-linux-x86-64.so.2", "");
  join(programs, home, "/programs", "");
  join(folders, programs, ":", runtime);
  join(program, programs, "/", name);

  int driver = same(name, "gcc") || same(name, "g++") || same(name, "cpp");
  int build = same(value(environment, "CONDA_BUILD_STATE="), "BUILD");
  /* The loader ends a folder at the first two, and GCC's language of specs has the others. */
  if (has(prefix, ";:") || (driver && has(prefix, "%\\|")))
    die(name, "cannot run from a folder with ; : % \\ or | in its path: ", prefix, "");
  if (driver && build) refuse_machine(name, words + 1);

  /* The machine's libraries do not fit to this C library, nor a site's folders to this compiler. */
  char *variables[each - environment + 3], **kept = variables;
  for (each = environment; *each; ++each)
    if (!begins(*each, "LD_PRELOAD=") && !begins(*each, "LD_AUDIT=") &&
#ifdef VARIABLE
        !begins(*each, VARIABLE "=") &&
#endif
        !(driver && (begins(*each, "GCC_EXEC_PREFIX=") || begins(*each, "COMPILER_PATH=") ||
                     begins(*each, "DDLCE_PREFIX="))))
      *kept++ = *each;

  static char argv0[PATH], sysroot[PATH], outer[PATH], inner[PATH];
  char *words_of_loader[count + 16], **next = words_of_loader;
  *next++ = loader;
  *next++ = "--library-path";
  *next++ = folders;
  *next++ = "--argv0";
  /* GCC finds its parts by its own name. */
  *next++ = driver ? join(argv0, home, "/bin/", name) : self;
  *next++ = program;
#ifdef VARIABLE
  static char variable[PATH];
  *kept++ = join(variable, VARIABLE "=", home, VALUE);
#endif
#ifdef OPTION
  *next++ = OPTION;
#endif
  if (driver) {
    *next++ = join(sysroot, "--sysroot=", folder, "/sysroot");
    /* Of these, the last that fits counts. */
    *next++ = join(outer, "-ffile-prefix-map=", folder, "=/usr");
    *next++ = join(inner, "-ffile-prefix-map=", home, "=/usr");
#ifdef USERS
    /* What users compile finds the environment's libraries without variables, as Python does. */
    if (!build) {
      static char specs[PATH], place[PATH];
      *next++ = join(specs, "-specs=", home, "/runpath.specs");
      *kept++ = join(place, "DDLCE_PREFIX=", prefix, "");
    }
#endif
  }
  *kept = 0;
  for (long i = 1; i < count; ++i) *next++ = words[i];
  *next = 0;
  long error = -call(EXECVE, (long)loader, (long)words_of_loader, (long)variables);
  const char *why = error == NOENT    ? "install the package runtime_linux-64 again: there is no "
                    : error == ACCES  ? "may the file system run programs? Not allowed: "
                    : error == TOOBIG ? "the arguments are too long for "
                                      : "cannot run ";
  die(name, why, loader, "");
}

__asm__(".globl _start\n_start:\n  mov %rsp, %rdi\n  and $-16, %rsp\n  call start\n  hlt\n");

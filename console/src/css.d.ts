/** The build bundles all style sheets into one file. */
declare module "*.css";
